"""The channel to one server: opened, opened again with a renewed certificate, and the calls over it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import grpc

from assay_client.ending import ended_in_order, raise_if_asked
from assay_client.remote.addresses import named_address, require_ours
from assay_client.remote.refusals import CALL_SECONDS, typed_error, unreachable
from assay_core.health_probe import is_serving
from assay_protos import (
    archive_pb2_grpc,
    bundle_pb2_grpc,
    campaign_pb2_grpc,
    identity_pb2_grpc,
    lab_pb2_grpc,
    records_pb2_grpc,
)
from assay_sampling.errors import AssayError, NotIdentifiedError, RefusedError, ServerUnreachableError

if TYPE_CHECKING:
    from assay_client.remote.logins import Login

CONNECT_SECONDS = 5.0
_LARGEST_MESSAGE_BYTES = 32 << 20

Answer = TypeVar("Answer")


class Sent(Protocol):
    """A record that can be sent."""

    def to_proto(self) -> Any: ...


class ServerChannel:
    """One channel, and the stubs of the server's services on it. See :class:`Connection`."""

    def __init__(self, address: str | None = None, *, connect_seconds: float = CONNECT_SECONDS) -> None:
        self._address = named_address(address)
        self.address = self._address.text
        self._options: list[tuple[str, int | str]] = [
            ("grpc.enable_http_proxy", 0),
            ("grpc.max_receive_message_length", _LARGEST_MESSAGE_BYTES),
            # gRPC's limit for one attempt to connect, including the handshake.
            ("grpc.min_reconnect_backoff_ms", int(1000 * connect_seconds)),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 2000),
        ]
        self._login: Login | None = None
        if self._address.socket is None:
            # Here, because a server at a socket needs no certificates, which take long to load.
            from assay_client.remote.logins import Login  # noqa: PLC0415

            self._login = Login(self._address, self._options)
            self._login.renew_if_due(lambda: None)
        else:
            require_ours(self._address)
        self.reached = False  # whether the server has answered yet
        self._old_channel: grpc.Channel | None = None
        self._open()

    def _open(self) -> None:
        if self._login is not None:
            self._channel = self._login.channel()
        else:
            self._channel = grpc.insecure_channel(self.address, options=self._options)
        self.campaigns: Any = campaign_pb2_grpc.CampaignServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self.bundles: Any = bundle_pb2_grpc.BundleServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self.records: Any = records_pb2_grpc.RecordsServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self.archives: Any = archive_pb2_grpc.ArchiveServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self.lab: Any = lab_pb2_grpc.LabServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self.identities: Any = identity_pb2_grpc.IdentityServiceStub(self._channel)  # type: ignore[no-untyped-call]

    def _open_again(self) -> None:
        """A new channel, with the renewed certificate; other threads' calls end over the old one."""
        if self._old_channel is not None:
            self._old_channel.close()
        self._old_channel = self._channel
        self._open()

    def renew_if_due(self) -> None:
        """Renew the certificate if it is due; before every call."""
        if self._login is not None:
            self._login.renew_if_due(self._open_again)

    def close(self) -> None:
        self._channel.close()
        if self._old_channel is not None:
            self._old_channel.close()

    def is_serving(self) -> bool:
        """What the server's health service says."""
        self.renew_if_due()
        try:
            return is_serving(self._channel, CALL_SECONDS)
        except grpc.RpcError as error:
            raise self.typed(error) from None

    def reach(self) -> None:
        """Note that a server is there, which a call that it never answers does not tell; raises
        ServerUnreachableError if none is."""
        with contextlib.suppress(RefusedError):  # a server without the health service has answered, too
            self.is_serving()
        self.reached = True

    def call(
        self,
        method: Callable[[], Callable[..., Any]],
        request: Sent,
        read: Callable[[Any], Answer],
        *,
        seconds: float = CALL_SECONDS,
    ) -> Answer:
        """The answer to one call; ``method`` finds it on the channel that is then in use."""
        self.renew_if_due()
        try:
            answer = method()(request.to_proto(), timeout=seconds)
        except grpc.RpcError as error:
            raise self.typed(error) from None
        self.reached = True
        return read(answer)

    def parts(
        self, method: Callable[[], Callable[..., Any]], request: Sent, read: Callable[[Any], Answer]
    ) -> Iterator[Answer]:
        """An answer that comes in parts."""
        self.renew_if_due()
        stream = method()(request.to_proto())
        try:
            with ended_in_order(stream.cancel):
                for message in stream:
                    self.reached = True
                    yield read(message)
                    raise_if_asked()
        except grpc.RpcError as error:
            raise_if_asked()
            raise self.typed(error) from None
        finally:
            stream.cancel()

    def typed(self, error: grpc.RpcError) -> AssayError:
        """The typed error behind a failed call."""
        typed = typed_error(error, self.address)
        if not isinstance(typed, ServerUnreachableError) or self.reached:
            return typed
        if self._login is None:
            return unreachable(self.address, "no server answers there")
        from assay_client.remote.logins import login_again  # noqa: PLC0415 - see above
        from assay_core.connecting.channel import why_unreachable  # noqa: PLC0415

        credentials = self._login.credentials
        if credentials.expired:
            return NotIdentifiedError(
                f"server {self.address}", "your certificate has expired", login_again(self.address)
            )
        cause, remedy = why_unreachable(self._address, credentials.authority)
        return ServerUnreachableError(self.address, cause, remedy)
