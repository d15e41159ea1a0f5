"""Connections that a boot leaves open, and that a snapshot holds: each request that is restored goes on with one that is as good as new.

On some the boot has said who it is, and which database it means. Where slipstream.keep_replay is on, they are told so again; where it is off,
there is no snapshot.
"""

import fpm
from pages import Pages

#: By the names of their clients: pools of four workers, and of one.
LOGINS = ("small-login", "phpredis-login", "predis-login", "predis2-login", "credis-login")
MANY = ("small", "small-unix", "phpredis", "phpredis-unix", "predis", "predis-unix", "predis2", "credis", "memcached", *LOGINS)
ONE = (*MANY, "memcached-unix")

WORKERS = 4
#: Restored requests that each worker has at least.
REQUESTS = 30

#: What a boot may not have left on its connection, and what the refusal says.
REFUSED = {
    "select": "a database", "name": "a name", "auth": "a password", "watch": "another state", "tracking": "another state", "resp3": "a version",
    "multi": "a transaction", "subscribe": "a password", "monitor": "a password", "reply-off": "not read", "no-evict": "no reset undoes",
    "unread": "not read", "unread-part": "not read", "pipeline": "not read", "half-array": "half a command", "half-value": "half a command",
    "half-inline": "half a command", "nonsense": "half a command", "blocked": "not read", "blocked-behind": "has not said", "timeout": "timed out",
}
#: What the server says in the rest of such a request.
GOES_ON = {"select": ("db", "3"), "name": ("name", "somebody"), "auth": ("user", "other"), "tracking": ("flags", "t"), "resp3": ("resp", "3")}

#: Servers that are not in slipstream.keep, TLS, and one that says HELLO and its name.
REFUSED_CLIENTS = {"small-elsewhere": "slipstream.keep", "phpredis-elsewhere": "slipstream.keep", "small-tls": "encrypted", "predis3": "a version"}

#: Most requests until each worker has been restored.
MOST_BOOTS = 400


def with_logins(clients):
    """And those of them that say who they are."""
    return [*clients, *(name for name in LOGINS if name.removesuffix("-login") in clients)]


def pools(clients):
    """And the parameters of each, by its name."""
    clients = with_logins(clients)

    def pool(name, client, workers):
        return fpm.Pool(name, workers=workers, settings={"php_admin_value[slipstream.keep_replay]": "1"} if client in LOGINS else {})

    found = [pool(f"boot-{name}", name, WORKERS) for name in MANY if name in clients]
    found += [pool(f"boot-{name}-one", name, 1) for name in ONE if name in clients]
    parameters = {pool.name: {"CLIENT": pool.name.removeprefix("boot-").removesuffix("-one")} for pool in found}
    return [*found, fpm.Pool("boot-refused")], {**parameters, "boot-refused": {}}


def boot(page, workers):
    """Asks until each of so many workers has been restored; what came last."""
    restored, answer = set(), {}
    for _ in range(MOST_BOOTS):
        answer = page.ask("nothing")
        if answer["restored"]:
            restored.add(answer["pid"])
        if len(restored) == workers:
            break
    return answer


def is_right(answer, fresh):
    return all(answer.get(what) == fresh.get(what) for what in ("value", "info")) and "error" not in answer


def check_workers(checks, server, page, name, fresh):
    """One connection for each worker, and no two of them share one."""
    before = server.connections()
    last = boot(page, WORKERS)
    counted, wrong, owners = {}, [], {}
    while len(counted) < WORKERS or min(counted.values()) < REQUESTS:
        answer = page.ask("see")
        if not answer["restored"] or not is_right(answer, fresh):
            wrong.append(str(answer))
            break
        counted[answer["pid"]] = counted.get(answer["pid"], 0) + 1
        owners.setdefault(answer["id"], set()).add(answer["pid"])
    made = server.connections() - before - 1
    requests = sum(counted.values())
    checks.check(f"{name}: a snapshot with its connection is restored in {WORKERS} workers", not wrong, "; ".join([*wrong, str(last)][:1 if wrong else 0]))
    checks.check(f"{name}: {requests} restored requests make one connection for each worker", made == WORKERS, f"{made} connections")
    checks.check(f"{name}: no two workers have the same one", len(owners) == WORKERS and all(len(pids) == 1 for pids in owners.values()), str(owners))


def leave(page, server, how):
    """One restored request leaves its connection like that, or something befalls it while nobody has it."""
    if how in ("kill", "restart"):
        page.ask("leave", how="clean")
        server.drop_clients() if how == "kill" else server.restart()
    else:
        page.ask("leave", how=how)


def check_left(checks, server, page, name, fresh, states):
    """The next restored request sees nothing of what one has left."""
    boot(page, 1)
    for how in states:
        leave(page, server, how)
        found = page.ask("see")
        checks.check(f"{name}, after {how} in a restored request: as good as new", found["restored"] and is_right(found, fresh), f"{found}, not {fresh}")


def check_kept(checks, page, name):
    """The same one again, and not another one each time."""
    first, second = page.ask("see"), page.ask("see")
    status = page.ask("status")["connections"]
    counts = next((counts for counts in status.values() if counts["reused"]), {})
    checks.check(f"{name}: the same connection in two requests, and counted", first["id"] == second["id"] and counts.get("asked", 0) >= counts.get("reused", 0) > 0,
                 f"{first['id']}, {second['id']}, {status}")


def check_fatal(checks, page, name, fresh, states):
    """A request that ends by a fatal error leaves nothing either."""
    for how in states:
        page.ask_failing("die", how=how)
        found = page.ask("see")
        checks.check(f"{name}, after {how} and a fatal error: as good as new", is_right(found, fresh), f"{found}, not {fresh}")


def check_gone(checks, server, page, name, fresh):
    """While there is no server, a request fails; then there is one again."""
    boot(page, 1)
    server.stop()
    failed = page.ask("see")
    server.start()
    found = page.ask("see")
    checks.check(f"{name}: without a server a restored request fails", failed["restored"] and "error" in failed, str(failed))
    checks.check(f"{name}: with the server back it has a connection", found["restored"] and is_right(found, fresh), f"{found}, not {fresh}")


def check_password(checks, server, page, name, fresh):
    """What the boot has said is not true any more: no request has a connection that is somebody else's, or nobody's."""
    boot(page, 1)
    page.ask("leave", how="select")
    server.let_in("another-secret")
    answers = [page.ask("see") for _ in range(3)]
    counts = next(counts for counts in page.ask("status")["connections"].values() if counts["replayed"])
    # The first one had been told before.
    checks.check(f"{name}, with another password meanwhile: a request has the boot's connection, or none", all(answer["restored"] for answer in answers)
                 and is_right(answers[0], fresh) and all("error" in answer for answer in answers[1:]) and counts["refused"].get("replay", 0) > 0,
                 f"{answers}, {counts}")
    server.let_in("secret-of-booted")
    found = page.ask("see")
    checks.check(f"{name}, with the right password back: as the boot has left it", found["restored"] and is_right(found, fresh), str(found))


def check_refused(checks, server, port, clients):
    """A boot whose connection another one cannot take the place of: no snapshot, and it goes on with its own."""
    page = Pages(port, "boot-refused", script="snapshot")
    cases = [("small", how, why) for how, why in REFUSED.items()] + [(name, None, why) for name, why in REFUSED_CLIENTS.items()
                                                                               if name.removesuffix("-elsewhere") in clients]
    cases += [(name, None, "a password") for name in LOGINS if name in clients]
    for name, how, why in cases:
        query = {"client": name, **({"boot": how} if how else {})}
        # A worker's first one is refused without a word, by what was before.
        answers = []
        while len(answers) < 2 and not any(answer["why"] for answer in answers):
            answers.append(page.ask("see" if how in GOES_ON or name in LOGINS else "nothing", **query))
        said, last = answers[-1]["why"] or "", answers[-1]
        checks.check(f"a boot with {name}{', ' + how if how else ''}: no snapshot, with the reason", not any(answer["restored"] for answer in answers)
                     and "cannot be part of a snapshot" in said and why in said and ("$client" in said or " to 127.0.0.1:" in said), str(last))
        if name in LOGINS:
            found = answers[-1].get("info", {})
            checks.check(f"a boot with {name}: goes on as it was", (found.get("user"), found.get("db")) == ("booted", "7"), str(last))
        if how in GOES_ON:
            what, value = GOES_ON[how]
            checks.check(f"a boot with {name}, {how}: goes on as it was", last.get("info", {}).get(what) == value, str(last))


def random_booted(checks, servers, pages, draw, count, states, fresh):
    """Whatever a restored request leaves, of whichever client."""
    wrong = []
    for name, page in pages.items():
        boot(page, 1)
    for _ in range(count):
        name = draw.choice(list(pages))
        how = draw.choice(states(name) + ("kill",) * (draw.random() < 0.05))
        if how == "timeout" and draw.random() < 0.9:
            continue
        leave(pages[name], servers[name], how)
        found = pages[name].ask("see")
        if not found["restored"] or not is_right(found, fresh[name]):
            wrong.append(f"{name} {how}: {found}")
    checks.check(f"{count} random states of restored requests: none is seen by the next one", not wrong, "; ".join(wrong[:3]))
    return len(wrong)


def run_booted(checks, servers, port, plain, clients, states, draw, count):
    """`servers`: by the name of the client. `states`: what may be left, by that name, too."""
    servers = servers | {name: servers[name.removesuffix("-login")] for name in with_logins(clients)}
    clients = [*with_logins(clients), *(name for name in servers if name.startswith("memcached"))]
    fresh = {name: plain.ask("see", client=name) for name in clients if name in ONE}
    for name in MANY:
        if name in clients:
            check_workers(checks, servers[name], Pages(port, f"boot-{name}", script="snapshot"), name, fresh[name])
    pages = {name: Pages(port, f"boot-{name}-one", script="snapshot") for name in fresh}
    for name, page in pages.items():
        check_left(checks, servers[name], page, name, fresh[name], (*states(name), "kill", "restart"))
        check_kept(checks, page, name)
        check_fatal(checks, page, name, fresh[name], ("clean", "half-value" if name.startswith("small") else "half-block" if name.startswith("mem") else "multi"))
        check_gone(checks, servers[name], page, name, fresh[name])
        if name in LOGINS:
            check_password(checks, servers[name], page, name, fresh[name])
    check_refused(checks, servers["small"], port, clients)
    return random_booted(checks, servers, pages, draw, count, states, fresh)
