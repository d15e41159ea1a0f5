<?php
/** A small HTTP client: sends exactly the headers it is given, one request per connection. */

namespace Check;

final class Request
{
    /**
     * @param string $label how messages name it
     * @param string $target path and query
     * @param list<string> $headers whole lines
     */
    public function __construct(
        public readonly string $label,
        public readonly string $method,
        public readonly string $target,
        public readonly array $headers = [],
        public readonly string $body = '',
    ) {
    }

    /** The same with another path, and more in its query. */
    public function to(string $path, string $query): self
    {
        [, $own] = explode('?', $this->target, 2) + [1 => ''];
        $whole = implode('&', array_filter([$own, $query], fn ($part) => $part !== ''));
        $label = $query === '' ? $this->label : "$this->label, $query";
        return new self($label, $this->method, $whole === '' ? $path : "$path?$whole", $this->headers, $this->body);
    }

    /** @param array<string, string> $fields */
    public static function form(string $label, string $target, array $fields, array $headers = []): self
    {
        $headers[] = 'Content-Type: application/x-www-form-urlencoded';
        return new self($label, 'POST', $target, $headers, http_build_query($fields));
    }

    /**
     * @param array<string, string> $fields
     * @param array<string, array{string, string}> $files field name => file name and content
     */
    public static function upload(string $label, string $target, array $fields, array $files): self
    {
        $boundary = 'boundary-of-the-tests';
        $body = '';
        foreach ($fields as $name => $value) {
            $body .= "--$boundary\r\nContent-Disposition: form-data; name=\"$name\"\r\n\r\n$value\r\n";
        }
        foreach ($files as $name => [$file, $content]) {
            $body .= "--$boundary\r\nContent-Disposition: form-data; name=\"$name\"; filename=\"$file\"\r\n"
                . "Content-Type: text/plain\r\n\r\n$content\r\n";
        }
        $headers = ["Content-Type: multipart/form-data; boundary=$boundary"];
        return new self($label, 'POST', $target, $headers, "$body--$boundary--\r\n");
    }
}

final class Response
{
    /** @param list<string> $headers whole lines, in the order in which they came */
    public function __construct(
        public readonly string $status,
        public readonly array $headers,
        public readonly string $body,
    ) {
    }
}

/** Something that could not be done with a server; the message is for people. */
final class ServerError extends \RuntimeException
{
}

/**
 * Sends a request to `tcp://...` or `unix://...` and waits for the whole answer.
 *
 * @throws ServerError if there is no answer, or only a part of it
 */
function send(string $address, Request $request): Response
{
    $socket = @stream_socket_client($address, $number, $message, PATIENCE_S);
    if ($socket === false) {
        throw new ServerError("cannot connect: $message");
    }
    stream_set_timeout($socket, PATIENCE_S);
    $lines = ["$request->method $request->target HTTP/1.1", 'Host: tests.example', 'Connection: close', ...$request->headers];
    if ($request->body !== '') {
        $lines[] = 'Content-Length: ' . strlen($request->body);
    }
    // A server that dies while it reads makes the write fail: what it did say is more useful than that notice.
    @fwrite($socket, implode("\r\n", $lines) . "\r\n\r\n" . $request->body);
    $text = (string) @stream_get_contents($socket);
    if (stream_get_meta_data($socket)['timed_out']) {
        throw new ServerError('no answer within ' . PATIENCE_S . ' s');
    }
    if (!str_contains($text, "\r\n\r\n")) {
        throw new ServerError($text === '' ? 'no answer' : 'only a part of an answer');
    }
    [$head, $body] = explode("\r\n\r\n", $text, 2);
    $headers = explode("\r\n", $head);
    $status = array_shift($headers);
    if (preg_grep('/^transfer-encoding: *chunked$/i', $headers)) {
        $body = join_chunks($body);
    }
    return new Response($status, $headers, $body);
}

/** @throws ServerError if the last chunk is missing */
function join_chunks(string $body): string
{
    $joined = '';
    while (preg_match('/^([0-9a-f]+)[^\r\n]*\r\n/i', $body, $match)) {
        $length = hexdec($match[1]);
        if ($length === 0) {
            return $joined;
        }
        $joined .= substr($body, strlen($match[0]), $length);
        $body = substr($body, strlen($match[0]) + $length + 2);
    }
    throw new ServerError("the answer was cut: $joined");
}
