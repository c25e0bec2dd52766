# Waits until a file is there; whoever calls it sets a limit.
until test -e "$1"; do
  sleep 0.1
done
