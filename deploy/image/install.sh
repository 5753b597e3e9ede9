#!/bin/sh
# Installs Assay with some extras into /opt/assay while an image is built: sh install.sh EXTRA,EXTRA
# Every file of another project has a hash of requirements/*.txt, or the build ends.
# Without pip, and with bytecode that names its source by hash instead of time: the same inputs give the same files.
set -eu
cd /src
python3 -m venv /opt/assay
if [ -d build/wheels ]; then offline="--no-index --find-links build/wheels"; else offline=""; fi
install() { /opt/assay/bin/pip install --quiet --no-cache-dir --no-compile --disable-pip-version-check $offline "$@"; }

locked=""
for extra in $(echo "$1" | tr , ' '); do locked="$locked --requirement requirements/$extra.txt"; done
install --require-hashes $locked
if [ ! -d build/wheels ]; then
  python3 -m venv /tmp/build
  /tmp/build/bin/pip install --quiet --no-cache-dir --disable-pip-version-check --require-hashes --requirement requirements/build.txt
  /tmp/build/bin/pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir build/wheels .
  rm -rf /tmp/build
fi
install --no-deps build/wheels/assay_gpu-*.whl
/opt/assay/bin/pip uninstall --quiet --yes pip setuptools
find /opt/assay -name __pycache__ -prune -exec rm -rf '{}' +
PYTHONHASHSEED=0 /opt/assay/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/assay/lib
