#!/bin/sh
# Installs Assay with some extras into /opt/assay while an image is built: sh install.sh EXTRAS
# Without pip, and with bytecode that names its source by hash instead of time: the same inputs give the same files.
set -eu
cd /src
python3 -m venv /opt/assay
if [ -d build/wheels ]; then
  set -- --no-index --find-links build/wheels "assay-gpu[$1]"
else
  set -- "/src[$1]"
fi
/opt/assay/bin/pip install --quiet --no-cache-dir --no-compile --disable-pip-version-check \
  --constraint requirements/constraints.txt "$@"
/opt/assay/bin/pip uninstall --quiet --yes pip setuptools
find /opt/assay -name __pycache__ -prune -exec rm -rf '{}' +
PYTHONHASHSEED=0 /opt/assay/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/assay/lib
