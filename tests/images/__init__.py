"""Images from a Debian tree, and the Compose lab of them, in Podman."""
