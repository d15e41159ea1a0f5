<?php
/**
 * WordPress's object cache in Redis, through phpredis: what sites of some size run. `stack up --object-cache redis` puts it
 * into wp-content; WordPress then loads it in place of its own.
 *
 * It behaves like the plugins in use: one connection per request, one GET per key that this request has not seen, one SET per
 * change. LAB_OBJECT_CACHE_PERSISTENT=1 (FPM_ENV of `stack up`) keeps the connection in the worker. With `lab.connect=command`
 * among PHP's settings it makes one for each command, as clients do whose setting for that is not read.
 */

final class WP_Object_Cache
{
    private const PREFIX = 'wp:';

    private Redis $redis;
    private array $address;
    private bool $connectsForCommands;
    /** @var array<string, mixed> what this request has read or written, by Redis key; false for "not there" is kept too */
    private array $seen = [];
    /** @var array<string, true> */
    private array $groupsInProcess = [];
    public int $cache_hits = 0;
    public int $cache_misses = 0;

    public function __construct()
    {
        $this->redis = new Redis();
        $this->address = ['127.0.0.1', (int) getenv('LAB_REDIS_PORT')];
        $this->connectsForCommands = get_cfg_var('lab.connect') === 'command';
        if (getenv('LAB_OBJECT_CACHE_PERSISTENT')) {
            $this->redis->pconnect(...$this->address);
        } elseif (!$this->connectsForCommands) {
            $this->redis->connect(...$this->address);
        }
    }

    private function redis(): Redis
    {
        if ($this->connectsForCommands) {
            $this->redis->close();
            $this->redis->connect(...$this->address);
        }
        return $this->redis;
    }

    public function close(): bool
    {
        return true;
    }

    public function get($key, $group, &$found = null)
    {
        $id = $this->id($key, $group);
        if (!array_key_exists($id, $this->seen)) {
            $text = $this->isInProcess($group) ? false : $this->redis()->get($id);
            if ($text === false) {
                $found = false;
                $this->cache_misses++;
                return false;
            }
            $this->seen[$id] = unserialize($text);
        }
        $found = true;
        $this->cache_hits++;
        return $this->copy($this->seen[$id]);
    }

    public function getMultiple(array $keys, $group): array
    {
        $unseen = [];
        foreach ($keys as $key) {
            $id = $this->id($key, $group);
            if (!array_key_exists($id, $this->seen)) {
                $unseen[] = $id;
            }
        }
        if ($unseen !== [] && !$this->isInProcess($group)) {
            foreach ($this->redis()->mget($unseen) as $index => $text) {
                if ($text !== false) {
                    $this->seen[$unseen[$index]] = unserialize($text);
                }
            }
        }
        $values = [];
        foreach ($keys as $key) {
            $id = $this->id($key, $group);
            $known = array_key_exists($id, $this->seen);
            $known ? $this->cache_hits++ : $this->cache_misses++;
            $values[$key] = $known ? $this->copy($this->seen[$id]) : false;
        }
        return $values;
    }

    public function set($key, $value, $group, int $expire): bool
    {
        $id = $this->id($key, $group);
        $this->seen[$id] = $this->copy($value);
        if ($this->isInProcess($group)) {
            return true;
        }
        $text = serialize($value);
        return $expire > 0 ? $this->redis()->setex($id, $expire, $text) : $this->redis()->set($id, $text);
    }

    public function exists($key, $group): bool
    {
        $this->get($key, $group, $found);
        return $found;
    }

    public function delete($key, $group): bool
    {
        $id = $this->id($key, $group);
        $known = array_key_exists($id, $this->seen);
        unset($this->seen[$id]);
        return $this->isInProcess($group) ? $known : $this->redis()->del($id) > 0;
    }

    /** Read and written again, like WordPress's own: Redis's INCRBY could not read a serialized number. */
    public function increase($key, int $offset, $group)
    {
        $value = $this->get($key, $group, $found);
        if (!$found) {
            return false;
        }
        $value = max(0, (is_numeric($value) ? (int) $value : 0) + $offset);
        $this->set($key, $value, $group, 0);
        return $value;
    }

    public function forgetRequest(): bool
    {
        $this->seen = [];
        return true;
    }

    public function flush(): bool
    {
        $this->seen = [];
        return $this->redis()->flushDB();
    }

    public function keepInProcess(array $groups): void
    {
        $this->groupsInProcess += array_fill_keys($groups, true);
    }

    private function isInProcess($group): bool
    {
        return isset($this->groupsInProcess[$group]);
    }

    private function id($key, $group): string
    {
        return self::PREFIX . ($group ?: 'default') . ':' . $key;
    }

    /** Callers change what they get; the cache must not change with it. */
    private function copy($value)
    {
        return is_object($value) ? clone $value : $value;
    }
}

function wp_cache_init()
{
    $GLOBALS['wp_object_cache'] = new WP_Object_Cache();
}

function wp_cache_get($key, $group = '', $force = false, &$found = null)
{
    return $GLOBALS['wp_object_cache']->get($key, $group, $found);
}

function wp_cache_get_multiple($keys, $group = '', $force = false)
{
    return $GLOBALS['wp_object_cache']->getMultiple($keys, $group);
}

function wp_cache_set($key, $data, $group = '', $expire = 0)
{
    return $GLOBALS['wp_object_cache']->set($key, $data, $group, (int) $expire);
}

function wp_cache_set_multiple(array $data, $group = '', $expire = 0)
{
    return array_combine(array_keys($data), array_map(
        fn ($key) => wp_cache_set($key, $data[$key], $group, $expire),
        array_keys($data)
    ));
}

function wp_cache_add($key, $data, $group = '', $expire = 0)
{
    if (wp_suspend_cache_addition() || $GLOBALS['wp_object_cache']->exists($key, $group)) {
        return false;
    }
    return wp_cache_set($key, $data, $group, $expire);
}

function wp_cache_add_multiple(array $data, $group = '', $expire = 0)
{
    return array_combine(array_keys($data), array_map(
        fn ($key) => wp_cache_add($key, $data[$key], $group, $expire),
        array_keys($data)
    ));
}

function wp_cache_replace($key, $data, $group = '', $expire = 0)
{
    return $GLOBALS['wp_object_cache']->exists($key, $group) && wp_cache_set($key, $data, $group, $expire);
}

function wp_cache_delete($key, $group = '')
{
    return $GLOBALS['wp_object_cache']->delete($key, $group);
}

function wp_cache_delete_multiple(array $keys, $group = '')
{
    return array_combine($keys, array_map(fn ($key) => wp_cache_delete($key, $group), $keys));
}

function wp_cache_incr($key, $offset = 1, $group = '')
{
    return $GLOBALS['wp_object_cache']->increase($key, (int) $offset, $group);
}

function wp_cache_decr($key, $offset = 1, $group = '')
{
    return $GLOBALS['wp_object_cache']->increase($key, -(int) $offset, $group);
}

function wp_cache_flush()
{
    return $GLOBALS['wp_object_cache']->flush();
}

function wp_cache_flush_runtime()
{
    return $GLOBALS['wp_object_cache']->forgetRequest();
}

function wp_cache_supports($feature)
{
    return in_array($feature, ['add_multiple', 'set_multiple', 'get_multiple', 'delete_multiple', 'flush_runtime'], true);
}

function wp_cache_close()
{
    return $GLOBALS['wp_object_cache']->close();
}

function wp_cache_add_non_persistent_groups($groups)
{
    $GLOBALS['wp_object_cache']->keepInProcess((array) $groups);
}

// One site, so groups that several sites would share are like all others.
function wp_cache_add_global_groups($groups)
{
}

function wp_cache_switch_to_blog($blog_id)
{
}

function wp_cache_reset()
{
}
