"""`punctual.AsyncClient`: the client for event loops."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, Unpack, cast

from punctual.core.status import ToldState
from punctual.core.verdict import Verdict
from punctual.service.client import ChangeOptions, Client, JobEvent, Stream, SubmitOptions, pauses
from punctual.service.schema import (
    ClusterStanding,
    Health,
    JobStanding,
    PolicyEntry,
    PolicyStanding,
    QuoteAnswer,
    WhyEntry,
)

T = TypeVar("T")


class AsyncClient:
    """`Client` for event loops: the same names and parameters, each in a thread."""

    def __init__(
        self, url: str | None = None, token: str | None = None, *, ca_file: Path | None = None, timeout_s: float = 30.0
    ) -> None:
        self._client = Client(url, token, ca_file=ca_file, timeout_s=timeout_s)

    async def submit(
        self, program: Sequence[str], *, idempotency_key: str | None = None, **options: Unpack[SubmitOptions]
    ) -> "AsyncJob":
        """See `Client.submit`."""
        job = await asyncio.to_thread(self._client.submit, program, idempotency_key=idempotency_key, **options)
        return AsyncJob(self, job.name)

    async def job(self, name: str) -> "AsyncJob":
        """See `Client.job`."""
        return AsyncJob(self, (await self.show(name)).name)

    async def jobs(
        self, *, state: Sequence[ToldState] = (), verdict: Sequence[Verdict] = (), name: str | None = None
    ) -> list[JobStanding]:
        """See `Client.jobs`."""
        return await asyncio.to_thread(self._client.jobs, state=state, verdict=verdict, name=name)

    async def show(self, name: str) -> JobStanding:
        """See `Client.show`."""
        return await asyncio.to_thread(self._client.show, name)

    async def why(self, name: str, *, last: int = 10, every: bool = False) -> list[WhyEntry]:
        """See `Client.why`."""
        return await asyncio.to_thread(self._client.why, name, last=last, every=every)

    async def change(self, name: str, **changes: Unpack[ChangeOptions]) -> JobStanding:
        """See `Client.change`."""
        return await asyncio.to_thread(self._client.change, name, **changes)

    async def stop(self, name: str, cause: str = "") -> JobStanding:
        """See `Client.stop`."""
        return await asyncio.to_thread(self._client.stop, name, cause)

    async def pause(self, name: str, cause: str = "") -> JobStanding:
        """See `Client.pause`."""
        return await asyncio.to_thread(self._client.pause, name, cause)

    async def resume(self, name: str) -> JobStanding:
        """See `Client.resume`."""
        return await asyncio.to_thread(self._client.resume, name)

    async def quote(self, name: str, *, deadline: str | None = None, cores: Sequence[float] = ()) -> QuoteAnswer:
        """See `Client.quote`."""
        return await asyncio.to_thread(self._client.quote, name, deadline=deadline, cores=cores)

    async def quote_new(
        self, program: Sequence[str], *, amounts: Sequence[float] = (), **options: Unpack[SubmitOptions]
    ) -> QuoteAnswer:
        """See `Client.quote_new`."""
        return await asyncio.to_thread(self._client.quote_new, program, amounts=amounts, **options)

    async def wait(self, name: str, timeout_s: float | None = None) -> JobStanding:
        """See `Client.wait`."""
        for pause_s in pauses(timeout_s):
            standing = await self.show(name)
            if standing.ended is not None:
                return standing
            await asyncio.sleep(pause_s)
        raise TimeoutError(f"job '{name}' has not ended in {timeout_s} s")

    async def logs(
        self, name: str, *, stream: Literal["stdout", "stderr"] = "stdout", follow: bool = False
    ) -> AsyncIterator[bytes]:
        """See `Client.logs`."""
        async for piece in _each(await asyncio.to_thread(self._client.logs, name, stream=stream, follow=follow)):
            yield piece

    async def events(
        self, *, job: str | None = None, kind: Sequence[str] = (), after: int | None = None
    ) -> AsyncIterator[JobEvent]:
        """See `Client.events`."""
        async for event in _each(await asyncio.to_thread(self._client.events, job=job, kind=kind, after=after)):
            yield event

    async def cluster(self) -> ClusterStanding:
        """See `Client.cluster`."""
        return await asyncio.to_thread(self._client.cluster)

    async def policies(self) -> list[PolicyEntry]:
        """See `Client.policies`."""
        return await asyncio.to_thread(self._client.policies)

    async def policy(self) -> PolicyStanding:
        """See `Client.policy`."""
        return await asyncio.to_thread(self._client.policy)

    async def change_policy(self, name: str, parameters: Mapping[str, Any] | None = None) -> PolicyStanding:
        """See `Client.change_policy`."""
        return await asyncio.to_thread(self._client.change_policy, name, parameters)

    async def metrics(self) -> str:
        """See `Client.metrics`."""
        return await asyncio.to_thread(self._client.metrics)

    async def health(self) -> Health:
        """See `Client.health`."""
        return await asyncio.to_thread(self._client.health)


class AsyncJob:
    """`Job` for event loops."""

    def __init__(self, client: AsyncClient, name: str) -> None:
        self._client = client
        self.name = name

    def __repr__(self) -> str:
        return f"AsyncJob({self.name!r})"

    async def status(self) -> JobStanding:
        """See `Job.status`."""
        return await self._client.show(self.name)

    async def wait(self, timeout_s: float | None = None) -> JobStanding:
        """See `Job.wait`."""
        return await self._client.wait(self.name, timeout_s)

    async def change(self, **changes: Unpack[ChangeOptions]) -> JobStanding:
        """See `Job.change`."""
        return await self._client.change(self.name, **changes)

    async def stop(self, cause: str = "") -> JobStanding:
        """See `Job.stop`."""
        return await self._client.stop(self.name, cause)

    async def pause(self, cause: str = "") -> JobStanding:
        """See `Job.pause`."""
        return await self._client.pause(self.name, cause)

    async def resume(self) -> JobStanding:
        """See `Job.resume`."""
        return await self._client.resume(self.name)

    async def quote(self, *, deadline: str | None = None, cores: Sequence[float] = ()) -> QuoteAnswer:
        """See `Job.quote`."""
        return await self._client.quote(self.name, deadline=deadline, cores=cores)

    async def why(self, *, last: int = 10, every: bool = False) -> list[WhyEntry]:
        """See `Job.why`."""
        return await self._client.why(self.name, last=last, every=every)

    def logs(self, *, stream: Literal["stdout", "stderr"] = "stdout", follow: bool = False) -> AsyncIterator[bytes]:
        """See `Job.logs`."""
        return self._client.logs(self.name, stream=stream, follow=follow)


async def _each(stream: Stream[T]) -> AsyncIterator[T]:
    """The parts of a stream, each waited for in a thread."""
    end = object()
    with stream:
        while (part := await asyncio.to_thread(cast(Callable[..., Any], next), stream, end)) is not end:
            yield part
