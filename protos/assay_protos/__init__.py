"""The wire contract of Assay: generated protobuf and gRPC code, one .proto file per service."""
