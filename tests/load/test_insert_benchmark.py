"""The Insert Benchmark on a real server: tables, rows, steps."""

import re
from collections.abc import Callable

import pytest
from mariadb_server import Server
from running import Running, insert_benchmark
from waiting import wait_for

from fleetmark_agent import histogram
from fleetmark_agent.job import Load, Stream

pytestmark = pytest.mark.fleet

Start = Callable[[Load], Running]
CLIENTS = 2
ROWS = 20_000


def pair(clients: int = CLIENTS, rate_per_second: float = 0.0) -> list[Stream]:
    return [
        Stream("insert", clients, "insert", rate_per_second),
        Stream("delete", clients, "delete", rate_per_second),
    ]


def load_rows(start: Start, server: Server, rows: int = ROWS, clients: int = CLIENTS, **options):
    running = start(
        insert_benchmark(
            server,
            [Stream("insert", clients, "insert")],
            phase="l.i0",
            rows_per_client=rows,
            rows_per_commit=100,
            create_table=True,
            **options,
        )
    ).release()
    outcome = running.finish()
    assert outcome.klass == "ok", outcome
    return running, outcome


def build_indexes(start: Start, server: Server, clients: int = CLIENTS, **options):
    running = start(
        insert_benchmark(
            server,
            [Stream("index", clients, "index")],
            phase="l.x",
            rows_per_commit=100,
            **options,
        )
    ).release()
    outcome = running.finish()
    assert outcome.klass == "ok", outcome
    return running


def indexes_of(server: Server, table: str) -> list[str]:
    definition = server.query(f"SHOW CREATE TABLE {table}")[0][1]
    return re.findall(r"^\s+KEY `(\w+)` \((.*)\)", definition, re.MULTILINE)


def test_first_load_fills_each_table_in_key_order(database: Server, start: Start) -> None:
    running, outcome = load_rows(start, database)
    inserted = running.stream("insert")
    assert inserted.rows == CLIENTS * ROWS
    assert inserted.operations == inserted.statements == CLIENTS * ROWS // 100
    assert outcome.sysbench_events == inserted.operations
    assert histogram.count_of(inserted.service) == inserted.operations
    assert histogram.count_of(inserted.response) == inserted.operations
    assert running.release_time <= inserted.first_event < running.release_time + 1.0
    assert inserted.last_event > inserted.first_event
    for table in ("pi1", "pi2"):
        counted = database.query(
            f"SELECT COUNT(*), MIN(transactionid), MAX(transactionid) FROM {table}"
        )
        assert counted == [(ROWS, 1, ROWS)]
        assert indexes_of(database, table) == []


def test_rows_follow_the_distributions(database: Server, start: Start) -> None:
    load_rows(start, database, clients=1)
    for column, values in (
        ("cashregisterid", 1000),
        ("customerid", 100_000),
        ("productid", 10_000),
        ("price", 500),
    ):
        low, high, mean = database.query(
            f"SELECT MIN({column}), MAX({column}), AVG({column}) FROM pi1"
        )[0]
        assert 0 <= low < values * 0.02
        assert values * 0.98 < high <= values - 1
        # The mean of 20,000 uniform values has a standard error of 0.2 % of the range.
        assert float(mean) == pytest.approx((values - 1) / 2, abs=values * 0.012)
    tenths = database.query("SELECT price DIV 50, COUNT(*) FROM pi1 GROUP BY 1")
    assert len(tenths) == 10
    assert all(abs(count - ROWS / 10) < 250 for _, count in tenths)


def test_data_column_is_padding_then_random_base64(database: Server, start: Start) -> None:
    load_rows(start, database, clients=1)
    lengths = dict(database.query("SELECT LENGTH(data), COUNT(*) FROM pi1 GROUP BY 1"))
    assert sorted(lengths) == list(range(10, 21))
    assert all(abs(count - ROWS / 11) < 250 for count in lengths.values())
    rows = [row[0] for row in database.query("SELECT data FROM pi1 LIMIT 5000")]
    for data in rows:
        mixed = int(len(data) * 0.75 * 0.5)
        assert data[: len(data) - mixed] == "a" * (len(data) - mixed)
        assert re.fullmatch(r"[A-Za-z0-9+/]*", data[len(data) - mixed :])
    tails = {data[-3:] for data in rows}
    assert len(tails) > 4500
    seconds = database.value("SELECT COUNT(DISTINCT dateandtime) FROM pi1")
    assert 1 <= seconds < 30


def test_runs_repeat_and_clients_differ(database: Server, start: Start) -> None:
    columns = "cashregisterid, customerid, productid, price, data"

    def rows() -> list[list[tuple]]:
        return [
            database.query(f"SELECT {columns} FROM {t} ORDER BY transactionid LIMIT 300")
            for t in ("pi1", "pi2")
        ]

    load_rows(start, database, rows=300)
    first = rows()
    database.drop_tables()
    load_rows(start, database, rows=300)
    assert rows() == first
    assert not set(first[0]) & set(first[1])
    database.drop_tables()
    load_rows(start, database, rows=300, seed=2)
    assert rows() != first


def test_index_step_builds_three_indexes(database: Server, start: Start) -> None:
    load_rows(start, database)
    running = build_indexes(start, database)
    built = running.stream("index")
    assert built.rows == CLIENTS * (100 + ROWS)
    assert built.operations == CLIENTS * 2
    assert built.user[2] > 0
    for table in ("pi1", "pi2"):
        assert indexes_of(database, table) == [
            ("marketsegment", "`productid`,`customerid`,`price`"),
            ("registersegment", "`cashregisterid`,`customerid`,`price`"),
            ("pdc", "`price`,`dateandtime`,`customerid`"),
        ]
        assert database.value(f"SELECT COUNT(*) FROM {table}") == ROWS + 100


@pytest.mark.parametrize(("rows", "per_commit"), [(5000, 50), (503, 5)])
def test_deletes_equal_inserts(database: Server, start: Start, rows: int, per_commit: int) -> None:
    load_rows(start, database)
    running = start(
        insert_benchmark(
            database, pair(), phase="l.i1", rows_per_client=rows, rows_per_commit=per_commit
        )
    ).release()
    assert running.finish().klass == "ok"
    inserted, deleted = running.stream("insert"), running.stream("delete")
    assert inserted.rows == deleted.rows == CLIENTS * rows
    assert inserted.operations == deleted.operations == CLIENTS * -(-rows // per_commit)
    for table in ("pi1", "pi2"):
        counted = database.query(
            f"SELECT COUNT(*), MIN(transactionid), MAX(transactionid) FROM {table}"
        )
        assert counted == [(ROWS, rows + 1, ROWS + rows)]


def test_deletes_wait_for_rows_of_an_almost_empty_table(database: Server, start: Start) -> None:
    load_rows(start, database, rows=10, clients=1)
    running = start(
        insert_benchmark(database, pair(1), phase="l.i1", rows_per_client=2000, rows_per_commit=50)
    ).release()
    assert running.finish().klass == "ok"
    assert running.stream("insert").rows == running.stream("delete").rows == 2000
    assert database.value("SELECT COUNT(*) FROM pi1") == 10


def test_inserter_and_deleter_stay_within_eight_statements(database: Server, start: Start) -> None:
    load_rows(start, database, rows=5000, clients=1)
    # A lock on the oldest row holds the deleter back while inserts could go on.
    with database.connect(autocommit=False) as holder:
        holder.cursor().execute("SELECT * FROM pi1 ORDER BY transactionid LIMIT 1 FOR UPDATE")
        running = start(
            insert_benchmark(
                database, pair(1), phase="l.i1", rows_per_client=5000, rows_per_commit=50
            )
        ).release()
        wait_for(lambda: running.stream("insert").operations >= 8, "eight inserts", 20)
        lead = [running.stream("insert").operations for _ in range(300)]
        assert set(lead) == {8}
        assert running.stream("delete").operations == 0
        holder.rollback()
    assert running.finish().klass == "ok"
    assert running.stream("delete").rows == running.stream("insert").rows == 5000


@pytest.mark.parametrize(("role", "word"), [("range", 0), ("point", 1)])
def test_query_steps(database: Server, start: Start, role: str, word: int) -> None:
    load_rows(start, database)
    build_indexes(start, database)
    streams = [*pair(rate_per_second=40.0), Stream("query", CLIENTS, role, defining=False)]
    running = start(
        insert_benchmark(database, streams, phase="q", rows_per_client=1000, rows_per_commit=50)
    ).release()
    outcome = running.finish()
    assert outcome.klass == "ok"
    inserted, deleted, asked = (running.stream(n) for n in ("insert", "delete", "query"))
    assert inserted.rows == deleted.rows == CLIENTS * 1000
    # 20 statements a client at 20 a second: the last is due after 0.95 or 0.975 seconds.
    assert 0.9 < inserted.last_event - running.release_time < 5.0
    assert asked.operations > 100
    assert asked.rows == asked.user[word]
    assert 9.9 < asked.rows / asked.operations <= 10.0
    assert histogram.count_of(asked.service) == asked.operations
    events = inserted.operations + deleted.operations + asked.operations
    assert outcome.sysbench_events == events


def test_queries_use_the_indexes_alone(database: Server, start: Start) -> None:
    load_rows(start, database, rows=2000, clients=1)
    build_indexes(start, database, clients=1)
    database.query("SET GLOBAL general_log_file = 'queries.log'")
    database.query("SET GLOBAL general_log = 1")
    try:
        load = insert_benchmark(
            database, [Stream("query", 1, "range")], phase="q", duration_seconds=0.3
        )
        assert start(load).release().finish().klass == "ok"
    finally:
        database.query("SET GLOBAL general_log = 0")
    log = (database.directory / "data" / "queries.log").read_text()
    queries = set(re.findall(r"(SELECT \w+, \w+, \w+ FROM pi1 .*)", log))
    forms = {re.sub(r"(>=?) \d+", r"\1 N", query) for query in queries}
    assert forms == {
        "SELECT productid, customerid, price FROM pi1 FORCE INDEX (marketsegment)"
        " WHERE productid >= N ORDER BY productid, customerid, price LIMIT 10",
        "SELECT cashregisterid, customerid, price FROM pi1 FORCE INDEX (registersegment)"
        " WHERE cashregisterid > N ORDER BY cashregisterid, customerid, price LIMIT 10",
        "SELECT price, dateandtime, customerid FROM pi1 FORCE INDEX (pdc)"
        " WHERE price >= N ORDER BY price, dateandtime, customerid LIMIT 10",
    }
    for form in forms:
        plan = database.query("EXPLAIN " + form.replace("N ", "5 ", 1))
        assert "Using index" in plan[0][-1]


def test_one_table_for_all_clients(database: Server, start: Start) -> None:
    load_rows(start, database, one_table=True)
    assert database.value("SELECT COUNT(*) FROM pi1") == CLIENTS * ROWS
    running = build_indexes(start, database, clients=1, one_table=True)
    assert running.stream("index").rows == 100 + CLIENTS * ROWS
    step = start(
        insert_benchmark(database, pair(), phase="l.i1", rows_per_client=3000, one_table=True)
    ).release()
    assert step.finish().klass == "ok"
    assert step.stream("insert").rows == step.stream("delete").rows == CLIENTS * 3000
    assert database.value("SELECT COUNT(*) FROM pi1") == CLIENTS * ROWS + 100


def test_a_table_of_somebody_else_is_not_touched(database: Server, start: Start) -> None:
    database.query("CREATE TABLE pi1 (a INT)")
    with pytest.raises(RuntimeError, match="error 1050: Table 'pi1' already exists"):
        load_rows(start, database, clients=1)
