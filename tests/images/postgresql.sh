# What the public image's entry does with the variables that deploy/compose.yaml sets.
set -eu
data=/var/lib/postgresql/data
install -d -m 700 -o postgres -g postgres "$data" /var/run/postgresql
as_postgres() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }
if ! test -s "$data/PG_VERSION"; then
  # shellcheck disable=SC2086 - several options
  as_postgres initdb --pgdata "$data" --username "$POSTGRES_USER" --pwfile "$POSTGRES_PASSWORD_FILE" \
    --auth-local trust --auth-host scram-sha-256 $POSTGRES_INITDB_ARGS
  echo "host all all all scram-sha-256" >> "$data/pg_hba.conf"
  as_postgres pg_ctl --pgdata "$data" --wait --options "-c listen_addresses=" start
  as_postgres createdb --host /var/run/postgresql --username "$POSTGRES_USER" "$POSTGRES_DB"
  as_postgres pg_ctl --pgdata "$data" --wait stop
fi
exec setpriv --reuid=postgres --regid=postgres --clear-groups postgres -D "$data" -c listen_addresses='*'
