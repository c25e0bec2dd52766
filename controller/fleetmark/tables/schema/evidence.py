"""Tables of what stands behind the numbers: facts, builds, variables, contracts, taints."""

from fleetmark.tables.schema.column import HOST, TRIAL_KEY, Table, text, whole, yes_no

FACTS = Table(
    "facts",
    "one fact of one host",
    (HOST, text("fact", "dotted name"), text("value")),
)

BUILDS = Table(
    "builds",
    "one fact of one build on one database host",
    (
        text("build"),
        text("host", "the database host"),
        text("fact", "dotted name"),
        text("value"),
    ),
)

VARIABLES = Table(
    "variables",
    "one server variable of one trial",
    (
        *TRIAL_KEY,
        text("variable"),
        text("asked", "null where the config does not name it"),
        text("effective"),
        yes_no("mismatch", "the server changed what was asked for"),
        yes_no("differs", "not the same in all trials of the run"),
    ),
)

CONTRACTS = Table(
    "contracts",
    "one check of a host against its contract",
    (
        HOST,
        text("trial"),
        text("moment", "before or after the trial"),
        text("checked", "the items, separated by commas"),
        whole("deviations"),
    ),
)

DEVIATIONS = Table(
    "deviations",
    "one item in which a host was not as declared",
    (
        HOST,
        text("trial"),
        text("moment", "before or after the trial"),
        text("item"),
        text("expected"),
        text("observed"),
    ),
)

TAINTS = Table(
    "taints",
    "one reason why a result must not be trusted",
    (
        *TRIAL_KEY,
        text("step", "empty: the whole trial"),
        text("kind"),
        text("text"),
    ),
)
