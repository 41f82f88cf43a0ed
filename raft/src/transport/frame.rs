//! Length-prefixed frames: bytes in, frames out, no socket.
//!
//! A frame is a `u32` length (big endian) and that many bytes. Faults answered:
//!
//! - *A length that lies.* The length is compared with the cap before anything is done with it, so
//!   `0xFFFF_FFFF` closes the connection. Even an allowed length allocates nothing by itself: the
//!   buffer grows with the bytes that have arrived.
//! - *Strangers.* Before the peer has proved that it knows the secret the cap is
//!   [`HANDSHAKE_FRAME_BYTES_MAX`], so a connection without the secret costs about a kilobyte.
//! - *A stream cut inside a frame.* [`Decoder::is_clean`] tells an end between two frames from one
//!   inside a frame; only the first can be an orderly end.

use bytes::{Buf, Bytes, BytesMut};

/// Greatest frame before the other side has proved that it knows the secret, in bytes.
pub(crate) const HANDSHAKE_FRAME_BYTES_MAX: usize = 1024;

/// Greatest frame of an authenticated peer, in bytes. Entries are batches that the desk bounds far
/// below it, and a request of many entries is divided (see [`wire`](super::wire)).
pub(crate) const FRAME_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Free space that a read asks for, in bytes.
const READ_BYTES: usize = 16 * 1024;

/// Bytes of the length before each frame.
const LENGTH_BYTES: usize = 4;

/// A frame above the cap, announced by the other side or about to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {length} bytes where at most {max} are allowed")]
pub struct FrameTooLong {
    /// Its length in bytes.
    pub length: usize,
    /// The cap in bytes.
    pub max: usize,
}

/// Takes frames out of a stream of bytes.
#[derive(Debug)]
pub(crate) struct Decoder {
    buffer: BytesMut,
    frame_bytes_max: usize,
}

impl Decoder {
    /// A decoder that refuses frames above `frame_bytes_max`.
    pub(crate) fn new(frame_bytes_max: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            frame_bytes_max,
        }
    }

    /// Changes the cap, for the frames after those already taken.
    pub(crate) fn set_frame_bytes_max(&mut self, bytes: usize) {
        self.frame_bytes_max = bytes;
    }

    /// The next whole frame, or `None` until more bytes have arrived.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, FrameTooLong> {
        let Some(prefix) = self.buffer.first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_be_bytes(*prefix)).unwrap_or(usize::MAX);
        if length > self.frame_bytes_max {
            return Err(FrameTooLong {
                length,
                max: self.frame_bytes_max,
            });
        }
        if self.buffer.len() - LENGTH_BYTES < length {
            return Ok(None);
        }
        self.buffer.advance(LENGTH_BYTES);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }

    /// Where the next read goes: free space behind what has arrived, about as much as a read wants.
    /// A buffer that is full doubles, so its size stays proportional to the bytes received.
    pub(crate) fn space(&mut self) -> &mut BytesMut {
        let wanted = READ_BYTES.min(self.frame_bytes_max + LENGTH_BYTES);
        if self.buffer.capacity() - self.buffer.len() < wanted / 2 {
            self.buffer.reserve(wanted);
        }
        &mut self.buffer
    }

    /// True if nothing of a next frame has arrived.
    pub(crate) fn is_clean(&self) -> bool {
        self.buffer.is_empty()
    }
}

/// Appends one frame to `out`; `encode` puts the content there, so that it is encoded once and
/// copied nowhere. After an error `out` is as it was.
pub(crate) fn put_frame<E: From<FrameTooLong>>(
    out: &mut Vec<u8>,
    max: usize,
    encode: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    let start = out.len();
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    let encoded = encode(out);
    let length = out.len() - start - LENGTH_BYTES;
    let checked = encoded.and_then(|()| match u32::try_from(length) {
        Ok(prefix) if length <= max => Ok(prefix),
        _ => Err(FrameTooLong { length, max }.into()),
    });
    match checked {
        Ok(prefix) => {
            out[start..start + LENGTH_BYTES].copy_from_slice(&prefix.to_be_bytes());
            Ok(())
        }
        Err(error) => {
            out.truncate(start);
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(content: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        put_frame::<FrameTooLong>(&mut out, FRAME_BYTES_MAX, |out| {
            out.extend_from_slice(content);
            Ok(())
        })
        .unwrap();
        out
    }

    #[test]
    fn a_length_above_the_cap_is_refused_before_its_bytes_arrive() {
        let mut decoder = Decoder::new(HANDSHAKE_FRAME_BYTES_MAX);
        decoder.space().extend_from_slice(&[0xFF; 4]);
        assert_eq!(
            decoder.next(),
            Err(FrameTooLong {
                length: 0xFFFF_FFFF,
                max: HANDSHAKE_FRAME_BYTES_MAX
            })
        );
        assert!(decoder.buffer.capacity() <= 2 * HANDSHAKE_FRAME_BYTES_MAX);
    }

    #[test]
    fn an_announced_length_alone_allocates_nothing() {
        let mut decoder = Decoder::new(FRAME_BYTES_MAX);
        let length = u32::try_from(FRAME_BYTES_MAX).unwrap();
        decoder.space().extend_from_slice(&length.to_be_bytes());
        for _ in 0..100 {
            assert_eq!(decoder.next(), Ok(None));
            decoder.space();
        }
        assert!(decoder.buffer.capacity() <= 2 * READ_BYTES);
    }

    #[test]
    fn a_frame_above_the_cap_is_not_sent_and_leaves_no_trace() {
        let mut out = frame(b"before");
        let before = out.clone();
        let sent = put_frame(&mut out, 8, |out| {
            out.extend_from_slice(&[7; 9]);
            Ok(())
        });
        assert_eq!(sent, Err(FrameTooLong { length: 9, max: 8 }));
        assert_eq!(out, before);
    }

    #[test]
    fn an_end_inside_a_frame_is_not_clean() {
        let bytes = frame(b"content");
        for cut in 1..bytes.len() {
            let mut decoder = Decoder::new(FRAME_BYTES_MAX);
            decoder.space().extend_from_slice(&bytes[..cut]);
            assert_eq!(decoder.next(), Ok(None));
            assert!(!decoder.is_clean(), "cut at {cut}");
        }
    }

    proptest! {
        #[test]
        fn frames_survive_any_division_into_reads(
            contents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..20),
            read_bytes in 1_usize..50,
        ) {
            let stream: Vec<u8> = contents.iter().flat_map(|content| frame(content)).collect();
            let mut decoder = Decoder::new(FRAME_BYTES_MAX);
            let mut got = Vec::new();
            for part in stream.chunks(read_bytes) {
                decoder.space().extend_from_slice(part);
                while let Some(content) = decoder.next().unwrap() {
                    got.push(content.to_vec());
                }
            }
            prop_assert_eq!(got, contents);
            prop_assert!(decoder.is_clean());
        }

        #[test]
        fn random_bytes_never_panic_nor_give_a_frame_above_the_cap(
            bytes in prop::collection::vec(any::<u8>(), 0..2000),
            frame_bytes_max in 0_usize..300,
        ) {
            let mut decoder = Decoder::new(frame_bytes_max);
            for part in bytes.chunks(17) {
                decoder.space().extend_from_slice(part);
                loop {
                    match decoder.next() {
                        Ok(Some(content)) => prop_assert!(content.len() <= frame_bytes_max),
                        Ok(None) => break,
                        Err(_) => return Ok(()),
                    }
                }
            }
        }
    }
}
