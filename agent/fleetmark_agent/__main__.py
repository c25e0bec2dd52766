"""Entry of the agent, for `python3 -m fleetmark_agent` and for the zipapp.

This file is written so that any Python 3 can read it: an old one must get as far as the check.
"""

import sys

OLDEST = (3, 9)


def main():  # type: () -> None
    """Check the Python version, then run the verb that was asked for."""
    if sys.version_info < OLDEST:
        sys.stdout.write(
            '{"error": {"kind": "host", "message": "the agent needs Python %d.%d or later",'
            ' "evidence": "%s is Python %d.%d.%d", "next_step": "install a newer Python and set'
            ' ansible_python_interpreter for this host"}}\n'
            % (OLDEST + (sys.executable,) + sys.version_info[:3])  # noqa: RUF005 (for old Pythons)
        )
        sys.exit(3)
    from fleetmark_agent import verbs

    sys.exit(verbs.run(sys.argv[1:]))


if __name__ == "__main__":
    main()
