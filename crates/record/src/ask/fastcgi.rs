//! As much of FastCGI as one request takes: the bytes of it, and those of its response. The libraries for it need an executor of
//! asynchronous code.

use std::io::{self, Read};

use thiserror::Error;

/// Of the FastCGI specification.
const VERSION: u8 = 1;
const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;
const RESPONDER: u8 = 1;

/// The only request on the connection.
const REQUEST_ID: u16 = 1;

/// What a record has at most.
const MAX_CONTENT: usize = 0xffff;

/// What is kept of a response: an answer takes some kilobytes.
const MAX_OUTPUT: usize = 1 << 20;

/// What is kept of its messages.
const MAX_MESSAGES: usize = 4 << 10;

/// Records that are read: each byte might come in one of its own, or in none.
const MAX_RECORDS: usize = 1 << 16;

/// What came back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// HTTP status, 200 unless the response has another one.
    pub status: u16,
    /// What comes after the headers.
    pub body: Vec<u8>,
    /// What was written as messages.
    pub messages: Vec<u8>,
}

/// Why there is no response.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ResponseError {
    /// The connection failed, or nothing came for too long.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The other side closed the connection before the end.
    #[error("the connection was closed before there was an answer")]
    Closed,
    /// The other side does not speak FastCGI.
    #[error("what answers does not speak FastCGI")]
    NotFastCgi,
    /// There is more than any answer has.
    #[error("the answer is too long")]
    TooLong,
    /// The server did not take the request: overloaded, or it takes none of this kind.
    #[error("the request was refused with status {0}")]
    Refused(u8),
}

/// A request without a body, with these parameters.
pub(crate) fn request(params: &[(&str, &str)]) -> Vec<u8> {
    let mut content = Vec::new();
    for (name, value) in params {
        for text in [name, value] {
            // The long form of a length always does.
            let len = u32::try_from(text.len()).unwrap_or(u32::MAX) | 1 << 31;
            content.extend(len.to_be_bytes());
        }
        content.extend(name.bytes().chain(value.bytes()));
    }
    let mut bytes = Vec::new();
    // The connection is closed afterwards.
    push_record(&mut bytes, BEGIN_REQUEST, &[0, RESPONDER, 0, 0, 0, 0, 0, 0]);
    for part in content.chunks(MAX_CONTENT) {
        push_record(&mut bytes, PARAMS, part);
    }
    push_record(&mut bytes, PARAMS, &[]);
    push_record(&mut bytes, STDIN, &[]);
    bytes
}

fn push_record(bytes: &mut Vec<u8>, kind: u8, content: &[u8]) {
    let [id_high, id_low] = REQUEST_ID.to_be_bytes();
    let [len_high, len_low] = u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes();
    bytes.extend([VERSION, kind, id_high, id_low, len_high, len_low, 0, 0]);
    bytes.extend(content);
}

/// Reads the response from `from`.
///
/// # Errors
///
/// See [`ResponseError`].
pub fn read_response(mut from: impl Read) -> Result<Response, ResponseError> {
    let (mut output, mut messages) = (Vec::new(), Vec::new());
    for _ in 0..MAX_RECORDS {
        let mut head = [0; 8];
        read_exact(&mut from, &mut head)?;
        let [version, kind, id_high, id_low, len_high, len_low, padding, _] = head;
        if version != VERSION {
            return Err(ResponseError::NotFastCgi);
        }
        let len = usize::from(u16::from_be_bytes([len_high, len_low]));
        let mut content = vec![0; len + usize::from(padding)];
        read_exact(&mut from, &mut content)?;
        content.truncate(len);
        if u16::from_be_bytes([id_high, id_low]) != REQUEST_ID {
            continue;
        }
        match kind {
            STDOUT if output.len() + len > MAX_OUTPUT => return Err(ResponseError::TooLong),
            STDOUT => output.extend(content),
            STDERR => {
                let room = MAX_MESSAGES - messages.len();
                messages.extend(content.into_iter().take(room));
            }
            END_REQUEST => {
                return match content.get(4) {
                    Some(0) => Ok(response(&output, messages)),
                    Some(status) => Err(ResponseError::Refused(*status)),
                    None => Err(ResponseError::NotFastCgi),
                };
            }
            _ => {}
        }
    }
    Err(ResponseError::TooLong)
}

fn read_exact(from: &mut impl Read, to: &mut [u8]) -> Result<(), ResponseError> {
    from.read_exact(to).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => ResponseError::Closed,
        _ => ResponseError::Io(error),
    })
}

/// Takes headers and body apart.
fn response(output: &[u8], messages: Vec<u8>) -> Response {
    let end = output.windows(4).position(|part| part == b"\r\n\r\n");
    let (head, body) = end.map_or((&output[..0], output), |end| (&output[..end], &output[end + 4..]));
    let status = String::from_utf8_lossy(head).lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("Status").then(|| value.split_ascii_whitespace().next()?.parse().ok())?
    });
    Response { status: status.unwrap_or(200), body: body.to_vec(), messages }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(kind: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        push_record(&mut bytes, kind, content);
        bytes
    }

    #[test]
    fn a_request_has_its_parameters_and_no_body() {
        let bytes = request(&[("A", "bc")]);
        let expected = [
            &[1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0][..],
            &[1, 4, 0, 1, 0, 11, 0, 0, 0x80, 0, 0, 1, 0x80, 0, 0, 2, b'A', b'b', b'c'],
            &[1, 4, 0, 1, 0, 0, 0, 0, 1, 5, 0, 1, 0, 0, 0, 0],
        ];
        assert_eq!(bytes, expected.concat());
    }

    #[test]
    fn a_response_may_come_in_pieces_with_messages_between() {
        let mut padded = vec![1, STDOUT, 0, 1, 0, 4, 3, 0];
        padded.extend(b"\r\nhe\0\0\0");
        let bytes = [
            record(STDOUT, b"Status: 404 Not Found\r\nX: y\r\n"),
            record(STDERR, b"no such file"),
            padded,
            vec![1, STDOUT, 0, 9, 0, 1, 0, 0, b'?'],
            record(STDOUT, b"llo"),
            record(END_REQUEST, &[0; 8]),
        ];
        let response = read_response(&*bytes.concat()).unwrap();
        assert_eq!(
            (response.status, &*response.body, &*response.messages),
            (404, &b"hello"[..], &b"no such file"[..])
        );
    }

    #[test]
    fn what_is_no_response_is_told_apart() {
        let error = |bytes: &[u8]| read_response(bytes).unwrap_err();
        assert!(matches!(error(b""), ResponseError::Closed));
        assert!(matches!(error(b"HTTP/1.1 400 Bad Request\r\n"), ResponseError::NotFastCgi));
        assert!(matches!(error(&record(END_REQUEST, &[0, 0, 0, 0, 2, 0, 0, 0])), ResponseError::Refused(2)));
        assert!(matches!(error(&record(END_REQUEST, &[])), ResponseError::NotFastCgi));
        let long = record(STDOUT, &[0; MAX_CONTENT]).repeat(17);
        assert!(matches!(error(&long), ResponseError::TooLong));
        assert!(matches!(error(&record(STDIN, b"").repeat(MAX_RECORDS)), ResponseError::TooLong));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_response_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
            let _ = read_response(&*bytes);
        }

        #[test]
        fn any_output_comes_back(body in prop::collection::vec(any::<u8>(), 0..300), cut in 1_usize..300) {
            let output = [b"X-Powered-By: PHP\r\n\r\n", &*body].concat();
            let mut bytes: Vec<u8> = output.chunks(cut).flat_map(|part| record(STDOUT, part)).collect();
            bytes.extend(record(END_REQUEST, &[0; 8]));
            prop_assert_eq!(read_response(&*bytes).unwrap().body, body);
        }
    }
}
