"""A notice board in aiohttp: `board.py PORT REDIS_PORT`. Each page asks Redis three things at once."""

import asyncio
import sys

import redis.asyncio as redis
from aiohttp import web

CACHE = web.AppKey("cache", redis.Redis) if hasattr(web, "AppKey") else "cache"


async def notices(request):
    cache = request.app[CACHE]
    page = request.match_info.get("page", "1")
    visits, notices, best = await asyncio.gather(cache.incr(f"visits:{page}"), cache.lrange("notices", 0, 19), cache.zrevrange("best", 0, 4))
    return web.json_response({"page": page, "visits": visits, "notices": [text.decode() for text in notices], "best": [name.decode() for name in best]})


async def begin(app):
    cache = app[CACHE] = redis.Redis(port=int(sys.argv[2]))
    await cache.delete("notices")
    await cache.rpush("notices", *(f"notice {number} " + "x" * 60 for number in range(20)))
    await cache.zadd("best", {f"author {number}": number for number in range(20)})


def main():
    app = web.Application()
    app.add_routes([web.get("/", notices), web.get("/page/{page}", notices)])
    app.on_startup.append(begin)
    web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None, access_log=None)


if __name__ == "__main__":
    main()
