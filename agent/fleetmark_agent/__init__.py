"""The load agent: what runs on the hosts of a fleet.

Needs Python 3.9 or later, the standard library, PyMySQL and prometheus-client. It is shipped
as one zipapp file and never imports the controller; the controller imports `job`, `journal`,
`histogram` and `shm` from here, so that both ends of the wire are one piece of code.
"""

__version__ = "0.1.0"
