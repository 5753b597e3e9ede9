#!/bin/sh
# Makes what the lab of compose.yaml keeps secret: the authority, the passwords of database and object store, and the
# certificates of metrics. Runs as root in a container of its own at each start, and keeps what is there.
set -eu
umask 077
cd /lab
random() { openssl rand -hex 24; }

# The servers' state, and the authority, which is the same in both.
chown 10001:10001 state-1 state-2 tokens
chmod 700 state-1 state-2
chmod 755 tokens
as_server() { setpriv --reuid=10001 --regid=10001 --clear-groups "$@"; }
as_server assay-server init --if-needed --name "Compose lab" --state state-1
as_server test -e state-2/authority/key.pem || as_server cp -R state-1/authority state-2/

# PostgreSQL reads a password; the servers a URL with it. The images of PostgreSQL read the file as root or as 999.
chmod 755 database-secret objects-secret secrets metrics reader
if ! test -e secrets/database; then
  password=$(random)
  printf %s "$password" > database-secret/password
  chmod 644 database-secret/password
  echo "postgresql://assay:$password@postgresql:5432/assay" > secrets/database
fi
if ! test -e secrets/objects; then
  key=$(random) secret=$(random)
  cat > objects-secret/s3.json <<END
{"identities": [{"name": "assay", "credentials": [{"accessKey": "$key", "secretKey": "$secret"}],
  "actions": ["Admin", "Read", "Write", "List", "Tagging"]}]}
END
  chmod 644 objects-secret/s3.json
  printf 'aws_access_key_id = %s\naws_secret_access_key = %s\n' "$key" "$secret" > secrets/objects
fi
chown 10001:10001 secrets/*

# Metrics leave a container only over TLS with certificates on both sides: one authority for endpoints and readers.
certify() {
  openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$2" -keyout "$1.key" -out request 2> /dev/null
  printf 'subjectAltName=DNS:%s\nextendedKeyUsage=serverAuth,clientAuth\n' "$2" > extensions
  openssl x509 -req -in request -CA authority.pem -CAkey authority.key -days 825 -extfile extensions -out "$1.pem" 2> /dev/null
  rm request extensions
}
if ! test -e reader/reader.pem; then
  cd "$(mktemp -d)"
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=metrics" \
    -keyout authority.key -out authority.pem 2> /dev/null
  certify endpoint assay-metrics
  certify reader prometheus
  cp endpoint.pem endpoint.key authority.pem /lab/metrics/
  cp reader.pem reader.key authority.pem /lab/reader/
  rm authority.key
  # Only the containers that need them have these volumes; the users in them differ.
  chmod 644 /lab/metrics/* /lab/reader/*
fi
