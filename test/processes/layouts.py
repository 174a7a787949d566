"""Ranks of this machine as if on several hosts (COMMSCHED_HOST_ID)."""

# Starts $3 ... as a rank on its host of the list $2; its rank is in the
# variable that $1 names.
_ON_ITS_HOST = """
eval "rank=\\$$1"
COMMSCHED_HOST_ID=$(echo "$2" | cut -d , -f $((rank + 1)))
export COMMSCHED_HOST_ID
shift 2
exec "$@"
"""


def on_hosts(hosts, command, rank_variable="COMMSCHED_RANK"):
  """`command` as a launcher starts it: `hosts` has the host of each rank."""
  return ["sh", "-c", _ON_ITS_HOST, "sh", rank_variable,
          ",".join(f"h{host}" for host in hosts), *command]
