"""The wait between load and queries, so that each query step meets the same kind of server.

Within a stated time: fresh statistics for the optimiser, dirty pages written back (InnoDB), or
memtables flushed and compacted (MyRocks). Without it the first query step would pay for the
writes of the load. What is done follows the Insert Benchmark as it is run since 2023
(docs/workloads); the stated time is a minimum, work that takes longer is waited for.
"""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, List, Optional, Tuple

from fleetmark_agent.dbms_status import connect, whole_status
from fleetmark_agent.job import Settle

Note = Callable[..., None]

_INNODB_VARIABLES = {
    "innodb_max_dirty_pages_pct_lwm": "1",
    "innodb_max_dirty_pages_pct": "1",
    "innodb_idle_flush_pct": "100",
}
_POLL_SECONDS = 0.1
_STATEMENT_SECONDS = 7200.0
_COMPACTION_PAUSE_SECONDS = 20.0


class Settling:
    """One settle. `note` takes the fields of a `note` record."""

    def __init__(self, settle: Settle, password: str, note: Note) -> None:
        self._settle = settle
        self._password = password
        self._note = note

    def run(self, stopped: threading.Event) -> None:
        """Do all of it, and last at least as long as asked. Raises pymysql.Error."""
        start = time.monotonic()
        connection = self._connect()
        before: Dict[str, str] = {}
        try:
            self._progress(connection, "start")
            if self._settle.engine.lower() == "innodb":
                before = self._set(connection, _INNODB_VARIABLES)
            self._analyze()
            if self._settle.engine.lower() == "rocksdb":
                self._settle_rocksdb(connection, stopped)
            rest = self._settle.minimum_seconds - (time.monotonic() - start)
            if rest > 0:
                stopped.wait(rest)
            self._progress(connection, "end")
        finally:
            # Restored also after an error: the query steps run with the user's config.
            self._set(connection, before)
            connection.close()

    def _connect(self) -> Any:
        connection = connect(self._settle.connection, self._password, _STATEMENT_SECONDS)
        with connection.cursor() as cursor:
            cursor.execute("USE `%s`" % self._settle.connection.database.replace("`", "``"))
        return connection

    def _set(self, connection: Any, wanted: Dict[str, str]) -> Dict[str, str]:
        """Set the variables that this server has; returns their former values.

        In the order given: lowering the limit first would drag the low-water mark along, with
        a warning and the former value lost.
        """
        former = {}
        with connection.cursor() as cursor:
            for name, value in wanted.items():
                cursor.execute("SHOW GLOBAL VARIABLES LIKE %s", (name,))
                row = cursor.fetchone()
                if row is None:
                    continue
                cursor.execute("SET GLOBAL %s = %s" % (name, _plain_number(value)))
                former[name] = str(row[1])
        # Put back in the opposite order, for the same reason.
        return dict(reversed(list(former.items())))

    def _analyze(self) -> None:
        tables = self._settle.tables
        if not tables:
            return
        start = time.monotonic()
        with ThreadPoolExecutor(max_workers=min(8, len(tables))) as pool:
            answers = [line for lines in pool.map(self._analyze_table, tables) for line in lines]
        for level, text in answers:
            self._note(level=level, text=text)
        self._note(
            level="info",
            text="analyzed %d tables" % len(tables),
            seconds=round(time.monotonic() - start, 3),
        )

    def _analyze_table(self, table: str) -> List[Tuple[str, str]]:
        connection = self._connect()
        try:
            with connection.cursor() as cursor:
                cursor.execute("ANALYZE TABLE `%s`" % table.replace("`", "``"))
                rows = cursor.fetchall()
        finally:
            connection.close()
        # Columns: table, operation, type of message, message. A missing table is an Error row
        # and no exception.
        return [
            ("warning", "ANALYZE TABLE %s: %s" % (table, row[3]))
            for row in rows
            if str(row[2]).lower() in ("error", "warning")
        ]

    def _settle_rocksdb(self, connection: Any, stopped: threading.Event) -> None:
        _wait(lambda: _running_compactions(connection) == 0, stopped)
        with connection.cursor() as cursor:
            cursor.execute("SET GLOBAL rocksdb_force_flush_memtable_now = 1")
            stopped.wait(_COMPACTION_PAUSE_SECONDS)
            # Not rocksdb_force_flush_memtable_and_lzero_now: it has crashed servers.
            cursor.execute("SHOW GLOBAL VARIABLES LIKE 'rocksdb_compact_lzero_now'")
            if cursor.fetchone() is not None:
                cursor.execute("SET GLOBAL rocksdb_compact_lzero_now = 1")
        _wait(lambda: _running_compactions(connection) == 0, stopped)

    def _progress(self, connection: Any, when: str) -> None:
        status = whole_status(connection)
        names = (
            "Innodb_buffer_pool_pages_dirty",
            "Innodb_checkpoint_age",
            "Innodb_history_list_length",
            "Rocksdb_num_running_compactions",
        )
        found = {name: int(status[name]) for name in names if status.get(name, "").isdigit()}
        self._note(level="info", text="settle: %s" % when, name="settle_" + when, status=found)


def _plain_number(text: str) -> str:
    """A variable's value for SET. Raises ValueError for anything but a number."""
    float(text)
    return text


def _running_compactions(connection: Any) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SHOW GLOBAL STATUS LIKE 'rocksdb_num_running_compactions'")
        row: Optional[Tuple[str, str]] = cursor.fetchone()
    return int(row[1]) if row else 0


def _wait(condition: Callable[[], bool], stopped: threading.Event) -> None:
    """The job's deadline is the bound: its supervisor sets `stopped`."""
    while not stopped.is_set() and not condition():
        stopped.wait(_POLL_SECONDS)
