<?php
// A child of a restored request sees what was restored, and nothing that it does reaches its parent or the next request.
// A child that is made before restore_state() boots: the image is its parent's. Children end by a signal, because the
// built-in server would have them go on as a second server; snapshot_fork_server.phpt has those.
// needs: pcntl, posix, sapi=cli-server
// query: fork=late
// query: fork=early
// query: fork=both
function in_child(callable $code): array
{
    [$ours, $theirs] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, STREAM_IPPROTO_IP);
    $child = pcntl_fork();
    if ($child === 0) {
        fwrite($theirs, json_encode($code()));
        posix_kill(getpid(), SIGKILL);
    }
    fclose($theirs);
    $said = stream_get_contents($ours);
    pcntl_waitpid($child, $status);
    return [json_decode($said, true), pcntl_wifsignaled($status) ? pcntl_wtermsig($status) : 'not killed'];
}
