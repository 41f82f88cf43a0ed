use proptest::prelude::*;

use super::*;
use crate::KEY_BYTES_MAX;

fn hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap())
        .collect()
}

fn key_of(text: &str) -> Key {
    text.parse().unwrap()
}

fn acquire_of(wait: u8, lease: u8, owner: u64, key: &str) -> Request {
    Request::Acquire(Acquire {
        wait: Wait(wait),
        lease: Lease::from_seconds(lease).unwrap(),
        owner: Owner(owner),
        key: key_of(key),
    })
}

fn release_of(token: u64, key: &str) -> Request {
    Request::Release(Release {
        token: Token(token),
        key: key_of(key),
    })
}

fn encoded(request: &Request) -> Vec<u8> {
    let mut out = Vec::new();
    encode_request(request, &mut out);
    out
}

fn encoded_reply(reply: &Reply) -> Vec<u8> {
    let mut out = Vec::new();
    encode_reply(reply, &mut out);
    out
}

#[test]
fn requests_match_the_protocols_vectors() {
    for (bytes, request) in [
        (
            "41051e11223344556677886f726465722d310a",
            acquire_of(5, 30, 0x1122_3344_5566_7788, "order-1"),
        ),
        ("41000a000000000000000a6b0a", acquire_of(0, 10, 10, "k")),
        (
            "52000000000000002a6f726465722d310a",
            release_of(42, "order-1"),
        ),
        ("52000000000000000ae59ca8e5baab0a", release_of(10, "在庫")),
    ] {
        let bytes = hex(bytes);
        assert_eq!(encoded(&request), bytes);
        assert_eq!(
            decode_request(&bytes),
            Decode::Complete(request, bytes.len())
        );
    }
}

#[test]
fn newlines_in_the_header_end_nothing() {
    // Wait, lease and every byte of the owner are 0x0A.
    let bytes = [b"A" as &[u8], &[b'\n'; 10], b"k\n"].concat();
    let request = acquire_of(10, 10, 0x0a0a_0a0a_0a0a_0a0a, "k");
    assert_eq!(
        decode_request(&bytes),
        Decode::Complete(request, bytes.len())
    );
}

#[test]
fn an_unknown_op_is_refused_on_that_byte_alone() {
    for op in 0..=u8::MAX {
        let decoded = decode_request(&[op]);
        match op {
            b'A' | b'R' => assert_eq!(decoded, Decode::Incomplete(0)),
            b'\n' => assert_eq!(decoded, Decode::Incomplete(1)),
            _ => assert_eq!(decoded, Decode::Refused(Reason::BadOp)),
        }
    }
}

#[test]
fn keep_alives_are_consumed_with_and_without_a_frame_behind_them() {
    assert_eq!(decode_request(b""), Decode::Incomplete(0));
    assert_eq!(decode_request(b"\n\n\n"), Decode::Incomplete(3));
    assert_eq!(decode_request(b"\n\nA"), Decode::Incomplete(2));
    let frame = [b"\n\n" as &[u8], &encoded(&release_of(1, "k")), b"\n"].concat();
    assert_eq!(
        decode_request(&frame),
        Decode::Complete(release_of(1, "k"), 2 + 11)
    );
    assert_eq!(decode_reply(b"\n"), Decode::Incomplete(1));
}

#[test]
fn a_frame_has_192_bytes_at_most() {
    let header = [b"A" as &[u8], &[0, 1], &[0; 8]].concat();
    let mut frame = header.clone();
    frame.resize(FRAME_BYTES_MAX, b'k');
    // As long as a frame may be, so its newline could still come; the key is too long by itself.
    assert_eq!(decode_request(&frame), Decode::Incomplete(0));
    frame.push(b'\n');
    assert_eq!(decode_request(&frame), Decode::Refused(Reason::BadKey));
    frame[FRAME_BYTES_MAX] = b'k';
    assert_eq!(decode_request(&frame), Decode::Refused(Reason::LineTooLong));
    frame.push(b'\n');
    assert_eq!(decode_request(&frame), Decode::Refused(Reason::LineTooLong));
}

#[test]
fn keep_alives_do_not_count_against_the_limit() {
    let mut frame = vec![b'\n'; 5];
    frame.push(b'M');
    frame.resize(5 + FRAME_BYTES_MAX, b'h');
    assert_eq!(decode_reply(&frame), Decode::Incomplete(5));
    frame.push(b'\n');
    let address = "h".repeat(ADDRESS_BYTES_MAX);
    assert_eq!(
        decode_reply(&frame),
        Decode::Complete(Reply::Moved(address), frame.len())
    );
}

#[test]
fn checks_run_in_the_order_length_lease_key() {
    let acquire = |lease: u8, body: &[u8]| [b"A" as &[u8], &[0, lease], &[0; 8], body].concat();
    // Not judged before the frame is complete.
    assert_eq!(decode_request(&acquire(0, b" ")), Decode::Incomplete(0));
    assert_eq!(
        decode_request(&acquire(0, &[b' '; 182])),
        Decode::Refused(Reason::LineTooLong)
    );
    assert_eq!(
        decode_request(&acquire(0, b" \n")),
        Decode::Refused(Reason::BadLease)
    );
    assert_eq!(
        decode_request(&acquire(251, b"k\n")),
        Decode::Refused(Reason::BadLease)
    );
    assert_eq!(
        decode_request(&acquire(255, b"\n")),
        Decode::Refused(Reason::BadLease)
    );
    assert_eq!(
        decode_request(&acquire(250, b" \n")),
        Decode::Refused(Reason::BadKey)
    );
}

#[test]
fn keys_are_checked_and_odd_ones_pass() {
    let release = |key: &[u8]| decode_request(&[b"R" as &[u8], &[0; 8], key, b"\n"].concat());
    for bad in [
        b"" as &[u8],
        b" ",
        b"a b",
        &[b'k'; KEY_BYTES_MAX + 1],
        b"\xff",
        b"\xc3",
    ] {
        assert_eq!(release(bad), Decode::Refused(Reason::BadKey));
    }
    for good in ["k", "\t", "\0", "k\r", "在庫", &"k".repeat(KEY_BYTES_MAX)] {
        assert_eq!(
            release(good.as_bytes()),
            Decode::Complete(release_of(0, good), 1 + 8 + good.len() + 1)
        );
    }
}

#[test]
fn replies_are_read_as_strictly_as_requests() {
    let cases: [(&[u8], Reason); 8] = [
        (b"X", Reason::BadOp),
        (
            b"A\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01k\n",
            Reason::BadRequest,
        ),
        (b"T\0\0\0\0\0\0\0\x01a b\n", Reason::BadKey),
        (b"M\n", Reason::BadRequest),
        (b"L\xff\n", Reason::BadRequest),
        (b"Enot_a_reason\n", Reason::BadRequest),
        (b"E\n", Reason::BadRequest),
        (b"Ebad_op\r\n", Reason::BadRequest),
    ];
    for (bytes, reason) in cases {
        assert_eq!(decode_reply(bytes), Decode::Refused(reason), "{bytes:?}");
    }
}

#[test]
fn every_reason_is_read_back() {
    for reason in Reason::ALL {
        assert_eq!(Reason::from_bytes(reason.as_str().as_bytes()), Some(reason));
    }
    assert_eq!(Reason::from_bytes(b"bad_"), None);
}

prop_compose! {
    fn keys()(text in "[^ \n]{1,32}") -> Key {
        Key::from_bytes(text.as_bytes()).unwrap()
    }
}

fn requests() -> impl Strategy<Value = Request> {
    prop_oneof![
        (any::<u8>(), 1..=250u8, any::<u64>(), keys()).prop_map(|(wait, lease, owner, key)| {
            let lease = Lease::from_seconds(lease).unwrap();
            Request::Acquire(Acquire {
                wait: Wait(wait),
                lease,
                owner: Owner(owner),
                key,
            })
        }),
        (any::<u64>(), keys()).prop_map(|(token, key)| Request::Release(Release {
            token: Token(token),
            key
        })),
    ]
}

fn replies() -> impl Strategy<Value = Reply> {
    let owned = || (any::<u64>().prop_map(Owner), keys());
    let tokened = || (any::<u64>().prop_map(Token), keys());
    prop_oneof![
        (1..=u64::MAX, owned()).prop_map(|(token, (owner, key))| {
            Reply::Granted {
                token: Token(token),
                owner,
                key,
            }
        }),
        owned().prop_map(|(owner, key)| Reply::TimedOut { owner, key }),
        owned().prop_map(|(owner, key)| Reply::Busy { owner, key }),
        tokened().prop_map(|(token, key)| Reply::Released { token, key }),
        tokened().prop_map(|(token, key)| Reply::NotCurrent { token, key }),
        "[a-z.]{1,180}:[0-9]{1,5}".prop_map(Reply::Moved),
        "[a-z.]{1,180}:[0-9]{1,5}".prop_map(Reply::Leader),
        proptest::sample::select(Reason::ALL.to_vec()).prop_map(Reply::Error),
    ]
}

/// Feeds `bytes` in pieces of the lengths `pieces`, over and over, as a socket might.
fn in_pieces<T>(bytes: &[u8], pieces: &[usize], decode: impl Fn(&[u8]) -> Decode<T>) -> Vec<T> {
    let mut frames = Vec::new();
    let mut buffered = Vec::new();
    let mut rest = bytes;
    for piece in pieces.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (now, later) = rest.split_at((*piece).min(rest.len()));
        buffered.extend_from_slice(now);
        rest = later;
        loop {
            match decode(&buffered) {
                Decode::Complete(frame, consumed) => {
                    frames.push(frame);
                    buffered.drain(..consumed);
                }
                Decode::Incomplete(keep_alives) => {
                    buffered.drain(..keep_alives);
                    break;
                }
                Decode::Refused(reason) => panic!("refused: {reason}"),
            }
        }
    }
    assert_eq!(buffered, b"", "a complete frame was left over");
    frames
}

proptest! {
    #[test]
    fn requests_come_back_however_the_stream_is_split(
        requests in prop::collection::vec((requests(), 0..3usize), 1..8),
        pieces in prop::collection::vec(1..64usize, 1..8),
    ) {
        let mut bytes = Vec::new();
        for (request, keep_alives) in &requests {
            encode_request(request, &mut bytes);
            bytes.extend(std::iter::repeat_n(b'\n', *keep_alives));
        }
        let requests: Vec<_> = requests.into_iter().map(|(request, _)| request).collect();
        prop_assert_eq!(in_pieces(&bytes, &pieces, decode_request), requests);
    }

    #[test]
    fn replies_come_back_however_the_stream_is_split(
        replies in prop::collection::vec(replies(), 1..8),
        pieces in prop::collection::vec(1..64usize, 1..8),
    ) {
        let bytes: Vec<u8> = replies.iter().flat_map(encoded_reply).collect();
        prop_assert_eq!(in_pieces(&bytes, &pieces, decode_reply), replies);
    }

    #[test]
    fn what_is_read_is_written_back_byte_for_byte(
        op in prop::sample::select(b"ARTBNMLE".to_vec()),
        mut bytes in prop::collection::vec(any::<u8>(), 0..256),
    ) {
        bytes.insert(0, op);
        bytes.push(b'\n');
        if let Decode::Complete(request, consumed) = decode_request(&bytes) {
            prop_assert_eq!(&encoded(&request)[..], &bytes[..consumed]);
        }
        if let Decode::Complete(reply, consumed) = decode_reply(&bytes) {
            prop_assert_eq!(&encoded_reply(&reply)[..], &bytes[..consumed]);
        }
    }

    #[test]
    fn a_refusal_stays_whatever_follows(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        more in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let both = [bytes.clone(), more].concat();
        if let Decode::Refused(reason) = decode_request(&bytes) {
            prop_assert_eq!(decode_request(&both), Decode::Refused(reason));
        }
        if let Decode::Refused(reason) = decode_reply(&bytes) {
            prop_assert_eq!(decode_reply(&both), Decode::Refused(reason));
        }
    }
}
