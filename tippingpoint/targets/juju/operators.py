"""Operators at work: which command does what to which model, so that everything they make is also removed."""

from __future__ import annotations

import asyncio
import itertools
import random
from asyncio import Future
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from tippingpoint.errors import OperationFailed
from tippingpoint.plan.operate import Command
from tippingpoint.targets.juju.api.access import ControllerAccess
from tippingpoint.targets.juju.commands import Commands
from tippingpoint.targets.juju.grow_steps import Pair
from tippingpoint.targets.juju.ledger import operated_model
from tippingpoint.targets.juju.operated_model import OperatedModel

T = TypeVar("T")
Work = Coroutine[Any, Any, None]

_MAKES: Mapping[Command, Command] = {
    "remove-application": "deploy",
    "remove-unit": "add-unit",
    "remove-relation": "integrate",
    "remove-offer": "offer",
    "remove-saas": "consume",
    "destroy-model": "add-model",
    "revoke": "grant",
    "remove-secret": "add-secret",
}
"""By command that removes something: the command that makes it, which runs instead if there is nothing to remove."""


class Operators:
    """The operators of one worker. They never touch what belongs to a model's shape, only what they made."""

    def __init__(
        self,
        commands: Commands,
        access: ControllerAccess,
        prefix: str,
        worker: str,
        models: Sequence[OperatedModel],
    ) -> None:
        """`models` are the worker's; this sequence changes as models come and go."""
        self._commands = commands
        self._access = access
        self._prefix = prefix
        self._worker = worker
        self._models = models
        self._numbers = itertools.count(1)
        self._added: list[str] = []
        """UUIDs of models that operators added."""
        self._do: Mapping[Command, Callable[[OperatedModel], Work | None]] = {
            "models": lambda model: self._commands.models(),
            "show-model": lambda model: self._commands.show_model(model.uuid),
            "status": lambda model: self._commands.status(model.uuid),
            "config": self._config,
            "run": partial(self._on_a_unit, commands.run),
            "exec": partial(self._on_a_unit, commands.exec),
            "deploy": self._deploy,
            "remove-application": self._remove_application,
            "add-unit": self._add_unit,
            "remove-unit": self._remove_unit,
            "integrate": self._integrate,
            "remove-relation": self._remove_relation,
            "offer": self._offer,
            "remove-offer": self._remove_offer,
            "consume": self._consume,
            "remove-saas": self._remove_saas,
            "add-model": lambda model: self._add_model(),
            "destroy-model": lambda model: self._destroy_model(),
            "grant": partial(self._access_to, True),
            "revoke": partial(self._access_to, False),
            "add-secret": self._add_secret,
            "remove-secret": self._remove_secret,
        }

    def work(self, wanted: Command, model: OperatedModel) -> tuple[Command, Work]:
        """Return a command and its work on a model.

        It is the wanted command if that has something to work on, else the command that makes such a thing, or
        `status`.
        """
        for command in (wanted, _MAKES.get(wanted, wanted)):
            work = self._do[command](model)
            if work is not None:
                return command, work
        return "status", self._commands.status(model.uuid)

    # -- commands on what belongs to the shape ----------------------------------------------------------

    def _config(self, model: OperatedModel) -> Work | None:
        application = random.choice([*model.applications])

        async def work() -> None:
            number = next(self._numbers)
            noticed: Future[None] = asyncio.get_running_loop().create_future()
            readers = model.logged_in(model.applications[application])
            if readers:
                model.noticing.expect(("config", application), number, readers, noticed)
            else:
                noticed.set_result(None)
            try:
                await self._commands.config(model.uuid, application, str(number))
                await noticed
            finally:
                noticed.cancel()

        return work()

    def _on_a_unit(self, command: Callable[[str, str], Work], model: OperatedModel) -> Work | None:
        unit = model.a_unit()
        return command(model.uuid, unit) if unit is not None else None

    # -- what they make and remove --------------------------------------------------------------------

    def _deploy(self, model: OperatedModel) -> Work:
        async def work() -> None:
            name = f"{self._prefix}-x{next(self._numbers)}"
            await self._commands.deploy(model.uuid, name, model.machine)
            model.made.applications.append(name)
            await _at_work(model, f"{name}/0")

        return work()

    def _remove_application(self, model: OperatedModel) -> Work | None:
        name = _taken(model.made.applications)
        if name is None:
            return None
        gone = [unit for unit in model.made.units if unit.partition("/")[0] == name]
        for unit in gone:
            del model.made.units[unit]
        model.agents.let_go(gone)
        return self._commands.remove_application(model.uuid, name)

    def _add_unit(self, model: OperatedModel) -> Work:
        application = random.choice([*model.applications])

        async def work() -> None:
            await _at_work(model, await self._commands.add_unit(model.uuid, application, model.machine))

        return work()

    def _remove_unit(self, model: OperatedModel) -> Work | None:
        there = [unit for unit in model.made.units if unit.partition("/")[0] in model.applications]
        if not there:
            return None
        unit = random.choice(there)
        del model.made.units[unit]
        model.agents.let_go([unit])
        return self._commands.remove_unit(model.uuid, unit)

    def _integrate(self, model: OperatedModel) -> Work | None:
        # The shape's relations go from the lower application to the higher one: these go the other way.
        applications = range(len(model.applications))
        taken = {*model.made.relations, *model.made.changing}
        free = [(one, other) for one in applications for other in range(one) if (one, other) not in taken]
        if not free:
            return None
        pair = random.choice(free)

        async def work() -> None:
            await self._commands.integrate(model.uuid, *model.ends(*pair))
            model.made.relations.append(pair)

        return self._changing(model, pair, work())

    def _remove_relation(self, model: OperatedModel) -> Work | None:
        pair = _taken(model.made.relations)
        if pair is None:
            return None
        return self._changing(model, pair, self._commands.remove_relation(model.uuid, *model.ends(*pair)))

    def _changing(self, model: OperatedModel, pair: Pair, work: Work) -> Work:
        """Do something to a relation, which no other command touches meanwhile."""
        model.made.changing.add(pair)

        async def and_release() -> None:
            try:
                await work
            finally:
                model.made.changing.discard(pair)

        return and_release()

    def _offer(self, model: OperatedModel) -> Work:
        application = random.choice([*model.applications])

        async def work() -> None:
            name = f"offer{next(self._numbers)}"
            await self._commands.offer(model.uuid, application, name)
            model.made.offers.append(name)

        return work()

    def _remove_offer(self, model: OperatedModel) -> Work | None:
        name = _taken(model.made.offers)
        return self._commands.remove_offer(self._url(model, name)) if name is not None else None

    def _consume(self, model: OperatedModel) -> Work | None:
        offers = [(each, name) for each in self._models if each is not model for name in each.made.offers]
        if not offers:
            return None
        source, name = random.choice(offers)
        source.made.offers.remove(name)  # so that nobody removes it meanwhile

        async def work() -> None:
            alias = f"saas{next(self._numbers)}"
            try:
                await self._commands.consume(model.uuid, self._url(source, name), alias)
            finally:
                source.made.offers.append(name)
            model.made.saas.append(alias)

        return work()

    def _remove_saas(self, model: OperatedModel) -> Work | None:
        alias = _taken(model.made.saas)
        return self._commands.remove_saas(model.uuid, alias) if alias is not None else None

    def _url(self, model: OperatedModel, offer: str) -> str:
        return f"{self._access.user_name}/{model.name}.{offer}"

    def _add_model(self) -> Work:
        async def work() -> None:
            name = operated_model(self._prefix, f"{self._worker}-o{next(self._numbers)}")
            self._added.append(await self._commands.add_model(name))

        return work()

    def _destroy_model(self) -> Work | None:
        model = _taken(self._added)
        return self._commands.destroy_model(model) if model is not None else None

    def _access_to(self, grant: bool, model: OperatedModel) -> Work | None:
        if model.made.granted is not (not grant):
            return None
        model.made.granted = None

        async def work() -> None:
            try:
                await (self._commands.grant if grant else self._commands.revoke)(model.uuid)
            except OperationFailed:
                model.made.granted = not grant
                raise
            model.made.granted = grant

        return work()

    def _add_secret(self, model: OperatedModel) -> Work:
        async def work() -> None:
            name = f"secret{next(self._numbers)}"
            model.made.secrets.append(await self._commands.add_secret(model.uuid, name))

        return work()

    def _remove_secret(self, model: OperatedModel) -> Work | None:
        uri = _taken(model.made.secrets)
        return self._commands.remove_secret(model.uuid, uri) if uri is not None else None


async def _at_work(model: OperatedModel, unit: str) -> None:
    """Wait until a new unit is logged in and idle."""
    done: Future[None] = asyncio.get_running_loop().create_future()
    model.at_work(unit, done)
    await done


def _taken(things: list[T]) -> T | None:
    """Remove a random one of these things and return it; None if there are none."""
    return things.pop(random.randrange(len(things))) if things else None
