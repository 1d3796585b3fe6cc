//! CHAP for both sides of a login (RFC 7143, 12.1.3; RFC 1994): one-way and mutual.
//!
//! The login state machines pass in the `CHAP_*` keys of a PDU and send the keys that they get back:
//!
//! | initiator | target |
//! |---|---|
//! | [`ChapInitiator::offer`]: `CHAP_A=8,6,5,7` | [`ChapTarget::on_offer`]: `CHAP_A`, `CHAP_I`, `CHAP_C` |
//! | [`ChapInitiator::on_challenge`]: `CHAP_N`, `CHAP_R` and, mutual, `CHAP_I`, `CHAP_C` | [`ChapTarget::on_response`]: mutual: `CHAP_N`, `CHAP_R` |
//! | [`ChapInitiator::on_response`] | |
//!
//! Pure: the caller draws the challenges ([`Challenge::random`]). The one rule: a side that sent a challenge never
//! answers that same challenge, and never answers with the secret that it expects from the peer; otherwise a peer
//! without the secret could make us compute its response (RFC 7143, 9.2.1).

use brunt_wire::iscsi::text::{format_binary, parse_binary, parse_number};
use sha2::Digest;
use subtle::ConstantTimeEq;

/// Maximum length of challenges and responses (RFC 7143, 12.1.3).
const BINARY_BYTES_MAX: usize = 1024;
/// Maximum length of names, as for all text values without another limit (RFC 7143, 6.1).
const NAME_BYTES_MAX: usize = 255;
/// Length of our own challenges: at least the length of the longest digest.
const CHALLENGE_BYTES: usize = 32;

/// The hash algorithms of RFC 7143, 12.1.3, with their wire numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the standards' names
pub enum Algorithm {
    Md5 = 5,
    Sha1 = 6,
    Sha256 = 7,
    Sha3_256 = 8,
}

impl Algorithm {
    /// All algorithms, in the order in which an initiator offers them. SHA-256 is last because targets of the IET
    /// family (such as tgt) take the first number that they know, and they chose 7 to mean SHA-1 before RFC 7143
    /// assigned it.
    pub const OFFERED: [Algorithm; 4] = [
        Algorithm::Sha3_256,
        Algorithm::Sha1,
        Algorithm::Md5,
        Algorithm::Sha256,
    ];

    fn from_number(number: &str) -> Option<Algorithm> {
        let number = parse_number(number)?;
        Algorithm::OFFERED
            .into_iter()
            .find(|algorithm| *algorithm as u64 == number)
    }

    /// The response to a challenge: a hash of identifier, secret and challenge (RFC 1994, 4.1).
    fn response(self, id: u8, secret: &ChapSecret, challenge: &[u8]) -> Vec<u8> {
        fn hash<D: Digest>(id: u8, secret: &[u8], challenge: &[u8]) -> Vec<u8> {
            D::new()
                .chain_update([id])
                .chain_update(secret)
                .chain_update(challenge)
                .finalize()
                .to_vec()
        }
        match self {
            Algorithm::Md5 => hash::<md5::Md5>(id, &secret.0, challenge),
            Algorithm::Sha1 => hash::<sha1::Sha1>(id, &secret.0, challenge),
            Algorithm::Sha256 => hash::<sha2::Sha256>(id, &secret.0, challenge),
            Algorithm::Sha3_256 => hash::<sha3::Sha3_256>(id, &secret.0, challenge),
        }
    }
}

/// A secret, which messages, logs and `{:?}` never print.
#[derive(Clone)]
pub struct ChapSecret(Vec<u8>);

impl ChapSecret {
    /// Creates a secret from these bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> ChapSecret {
        ChapSecret(bytes.into())
    }

    /// Whether both secrets are the same; takes constant time for secrets of the same length.
    pub fn is_same(&self, other: &ChapSecret) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl std::fmt::Debug for ChapSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ChapSecret(…)")
    }
}

/// A name and the secret that authenticates it.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// `CHAP_N`.
    pub user: String,
    /// The shared secret.
    pub secret: ChapSecret,
}

impl Credentials {
    /// Credentials for this user and secret.
    pub fn new(user: impl Into<String>, secret: impl Into<Vec<u8>>) -> Credentials {
        Credentials {
            user: user.into(),
            secret: ChapSecret::new(secret),
        }
    }
}

/// A user who may log in, and how the target authenticates itself to this user.
#[derive(Clone, Debug)]
pub struct ChapUser {
    /// The initiator's credentials.
    pub initiator: Credentials,
    /// The target's credentials; if `None`, mutual authentication is refused.
    pub own: Option<Credentials>,
}

/// A challenge for the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    id: u8,
    bytes: [u8; CHALLENGE_BYTES],
}

impl Challenge {
    /// An unpredictable challenge.
    ///
    /// # Panics
    /// The kernel fails to provide random numbers, which does not happen on Linux.
    pub fn random() -> Challenge {
        let mut bytes = [0; CHALLENGE_BYTES + 1];
        getrandom::fill(&mut bytes).expect("random numbers from the kernel");
        Challenge::new(bytes[0], bytes[1..].try_into().expect("one less"))
    }

    /// A fixed challenge, for tests.
    pub const fn new(id: u8, bytes: [u8; CHALLENGE_BYTES]) -> Challenge {
        Challenge { id, bytes }
    }
}

/// Why an authentication failed. Errors reveal no more than a peer may know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChapError {
    /// A key is missing, unexpected, or has an invalid value.
    #[error("CHAP: {0} is missing or malformed")]
    Key(&'static str),
    /// The two sides have no algorithm in common.
    #[error("CHAP: no common hash algorithm")]
    NoCommonAlgorithm,
    /// The name or the response was wrong.
    #[error("CHAP: wrong user name or secret")]
    Wrong,
    /// The peer sent our own challenge back.
    #[error("CHAP: the peer reflected our challenge")]
    Reflected,
    /// The secrets of both directions are the same, which would let a peer without the secret log in.
    #[error("CHAP: both directions have the same secret; use different ones")]
    SameSecret,
    /// The initiator requires mutual authentication, but no secret is configured for it.
    #[error("CHAP: the peer requires mutual authentication, for which no secret is configured")]
    NotMutual,
}

/// Keys to send, in order.
pub type Keys = Vec<(&'static str, String)>;

/// The initiator's side of one login.
#[derive(Debug)]
pub struct ChapInitiator {
    own: Credentials,
    /// The target's expected credentials and our challenge, for mutual CHAP.
    target: Option<(Credentials, Challenge)>,
    algorithm: Option<Algorithm>,
}

impl ChapInitiator {
    /// Creates an initiator that authenticates itself with `own` and, if `target` is given, authenticates the target
    /// with this challenge.
    ///
    /// # Errors
    /// Both secrets are the same.
    pub fn new(
        own: Credentials,
        target: Option<(Credentials, Challenge)>,
    ) -> Result<ChapInitiator, ChapError> {
        if target
            .as_ref()
            .is_some_and(|(target, _)| target.secret.is_same(&own.secret))
        {
            return Err(ChapError::SameSecret);
        }
        Ok(ChapInitiator {
            own,
            target,
            algorithm: None,
        })
    }

    /// The keys to send once `AuthMethod=CHAP` is negotiated.
    pub fn offer(&self) -> Keys {
        let numbers: Vec<String> = Algorithm::OFFERED
            .iter()
            .map(|a| (*a as u8).to_string())
            .collect();
        vec![("CHAP_A", numbers.join(","))]
    }

    /// The response to the target's `CHAP_A`, `CHAP_I`, `CHAP_C`.
    pub fn on_challenge(&mut self, pairs: &[(&str, &str)]) -> Result<Keys, ChapError> {
        let algorithm =
            Algorithm::from_number(value(pairs, "CHAP_A")?).ok_or(ChapError::NoCommonAlgorithm)?;
        let (id, challenge) = challenge_in(pairs)?;
        if self
            .target
            .as_ref()
            .is_some_and(|(_, ours)| challenge == ours.bytes)
        {
            return Err(ChapError::Reflected);
        }
        self.algorithm = Some(algorithm);
        let mut keys = response_keys(algorithm, &self.own, id, &challenge);
        if let Some((_, ours)) = &self.target {
            keys.push(("CHAP_I", ours.id.to_string()));
            keys.push(("CHAP_C", format_binary(&ours.bytes)));
        }
        Ok(keys)
    }

    /// Whether the target must authenticate itself.
    pub fn is_mutual(&self) -> bool {
        self.target.is_some()
    }

    /// Checks the target's `CHAP_N` and `CHAP_R`; does nothing for one-way CHAP.
    pub fn on_response(&self, pairs: &[(&str, &str)]) -> Result<(), ChapError> {
        let Some((credentials, ours)) = &self.target else {
            return Ok(());
        };
        let algorithm = self.algorithm.ok_or(ChapError::Key("CHAP_A"))?;
        verify(algorithm, Some(credentials), ours, pairs)
    }
}

/// The target's side of one login.
#[derive(Debug)]
pub struct ChapTarget {
    challenge: Challenge,
    algorithm: Option<Algorithm>,
}

impl ChapTarget {
    /// Creates a target that sends this challenge.
    pub fn new(challenge: Challenge) -> ChapTarget {
        ChapTarget {
            challenge,
            algorithm: None,
        }
    }

    /// The answer to the initiator's `CHAP_A` list: its first algorithm that we support, and the challenge.
    pub fn on_offer(&mut self, pairs: &[(&str, &str)]) -> Result<Keys, ChapError> {
        let offered = value(pairs, "CHAP_A")?;
        let algorithm = offered
            .split(',')
            .find_map(Algorithm::from_number)
            .ok_or(ChapError::NoCommonAlgorithm)?;
        self.algorithm = Some(algorithm);
        Ok(vec![
            ("CHAP_A", (algorithm as u8).to_string()),
            ("CHAP_I", self.challenge.id.to_string()),
            ("CHAP_C", format_binary(&self.challenge.bytes)),
        ])
    }

    /// Checks the initiator's `CHAP_N` and `CHAP_R` against `users`, several of which may have the same name. Returns
    /// the matching user and, if the initiator requested mutual authentication, the keys that authenticate the target.
    pub fn on_response<'u>(
        &self,
        pairs: &[(&str, &str)],
        users: &'u [ChapUser],
    ) -> Result<(&'u Credentials, Keys), ChapError> {
        let algorithm = self.algorithm.ok_or(ChapError::Key("CHAP_A"))?;
        let name = name_in(pairs)?;
        let mut known = users.iter().filter(|user| user.initiator.user == name);
        let mut candidate = known.next();
        let found = loop {
            match verify(
                algorithm,
                candidate.map(|user| &user.initiator),
                &self.challenge,
                pairs,
            ) {
                Ok(()) => break candidate.ok_or(ChapError::Wrong)?,
                // Users of different targets may have the same name but different secrets.
                Err(ChapError::Wrong) if candidate.is_some() => candidate = known.next(),
                Err(error) => return Err(error),
            }
        };
        let (user, own) = (&found.initiator, found.own.as_ref());
        if find(pairs, "CHAP_I").is_none() && find(pairs, "CHAP_C").is_none() {
            return Ok((user, Vec::new()));
        }
        let (id, challenge) = challenge_in(pairs)?;
        if challenge == self.challenge.bytes {
            return Err(ChapError::Reflected);
        }
        let own = own.ok_or(ChapError::NotMutual)?;
        if own.secret.is_same(&user.secret) {
            return Err(ChapError::SameSecret);
        }
        Ok((user, response_keys(algorithm, own, id, &challenge)))
    }
}

/// Checks the name and response of a peer that claims to be `expected`; an unknown name takes as long as a wrong
/// secret.
fn verify(
    algorithm: Algorithm,
    expected: Option<&Credentials>,
    challenge: &Challenge,
    pairs: &[(&str, &str)],
) -> Result<(), ChapError> {
    let name = name_in(pairs)?;
    let response = binary(pairs, "CHAP_R")?;
    let nobody = ChapSecret::new(*b"");
    let secret = expected.map_or(&nobody, |credentials| &credentials.secret);
    let right = algorithm.response(challenge.id, secret, &challenge.bytes);
    let is_right: bool = right.ct_eq(&response).into();
    if is_right && expected.is_some_and(|credentials| credentials.user == name) {
        Ok(())
    } else {
        Err(ChapError::Wrong)
    }
}

fn response_keys(algorithm: Algorithm, who: &Credentials, id: u8, challenge: &[u8]) -> Keys {
    let response = algorithm.response(id, &who.secret, challenge);
    vec![
        ("CHAP_N", who.user.clone()),
        ("CHAP_R", format_binary(&response)),
    ]
}

fn challenge_in(pairs: &[(&str, &str)]) -> Result<(u8, Vec<u8>), ChapError> {
    let id = parse_number(value(pairs, "CHAP_I")?).and_then(|id| u8::try_from(id).ok());
    Ok((
        id.ok_or(ChapError::Key("CHAP_I"))?,
        binary(pairs, "CHAP_C")?,
    ))
}

fn name_in<'a>(pairs: &[(&str, &'a str)]) -> Result<&'a str, ChapError> {
    let name = value(pairs, "CHAP_N")?;
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(ChapError::Key("CHAP_N"));
    }
    Ok(name)
}

fn binary(pairs: &[(&str, &str)], key: &'static str) -> Result<Vec<u8>, ChapError> {
    let text = value(pairs, key)?;
    // The limit for the longer of the two encodings: "0x" and two hexadecimal digits per byte.
    if text.len() > 2 + 2 * BINARY_BYTES_MAX {
        return Err(ChapError::Key(key));
    }
    parse_binary(text)
        .filter(|bytes| (1..=BINARY_BYTES_MAX).contains(&bytes.len()))
        .ok_or(ChapError::Key(key))
}

fn value<'a>(pairs: &[(&str, &'a str)], key: &'static str) -> Result<&'a str, ChapError> {
    find(pairs, key).ok_or(ChapError::Key(key))
}

fn find<'a>(pairs: &[(&str, &'a str)], key: &str) -> Option<&'a str> {
    pairs
        .iter()
        .find(|(name, _)| *name == key)
        .map(|(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Challenge = Challenge::new(7, [0x11; CHALLENGE_BYTES]);
    const THEIRS: Challenge = Challenge::new(9, [0x22; CHALLENGE_BYTES]);

    fn user() -> Credentials {
        Credentials::new("alice", *b"secret of alice")
    }

    fn target_user() -> Credentials {
        Credentials::new("target", *b"secret of target")
    }

    fn borrow(keys: &Keys) -> Vec<(&str, &str)> {
        keys.iter()
            .map(|(key, value)| (*key, value.as_str()))
            .collect()
    }

    /// Runs a login with both sides; `offer` replaces the initiator's list.
    fn login(
        initiator: &mut ChapInitiator,
        own: Option<&Credentials>,
        offer: &str,
    ) -> Result<Keys, ChapError> {
        let mut target = ChapTarget::new(THEIRS);
        let challenge = target.on_offer(&[("CHAP_A", offer)])?;
        let response = initiator.on_challenge(&borrow(&challenge))?;
        let namesake = Credentials::new("alice", *b"of another target");
        let users = [target_user(), namesake, user()];
        let users = users.map(|initiator| ChapUser {
            initiator,
            own: own.cloned(),
        });
        let (who, proof) = target.on_response(&borrow(&response), &users)?;
        assert_eq!(who.user, "alice");
        initiator.on_response(&borrow(&proof))?;
        Ok(challenge)
    }

    /// Responses match the output of other tools: `printf '\1secretCHALLENGE' | md5sum` (sha1sum, sha256sum, openssl
    /// dgst -sha3-256).
    #[test]
    fn responses_are_the_hashes_of_other_tools() {
        let check = |algorithm: Algorithm, expected: &str| {
            let response = algorithm.response(1, &ChapSecret::new(*b"secret"), b"CHALLENGE");
            assert_eq!(format_binary(&response), expected, "{algorithm:?}");
        };
        check(Algorithm::Md5, "0xfc36736b5e16415197db2bcd56591853");
        check(
            Algorithm::Sha1,
            "0xb696342222ef06ee02284a766721a1d9dd4008d9",
        );
        check(
            Algorithm::Sha256,
            "0xc9b3d4a9a15c52708eb6393628987c2ae6f75dabb48ed332015dfec6967cdf95",
        );
        check(
            Algorithm::Sha3_256,
            "0xbfe36f334926c6458a1e26d91656cce17c8e0a5062bb4a3a3d4d111c89800d74",
        );
    }

    /// Each algorithm works, one-way and mutual; the target takes the first one in the list that it supports.
    #[test]
    fn each_algorithm_works_one_way_and_mutual() {
        let check = |offer, chosen: &str| {
            let mut one_way = ChapInitiator::new(user(), None).unwrap();
            assert_eq!(
                login(&mut one_way, None, offer).unwrap()[0].1,
                chosen,
                "{offer}"
            );
            let mut mutual = ChapInitiator::new(user(), Some((target_user(), OURS))).unwrap();
            assert_eq!(
                login(&mut mutual, Some(&target_user()), offer).unwrap()[0].1,
                chosen,
                "{offer}"
            );
        };
        check("5", "5");
        check("6", "6");
        check("7,5", "7");
        check("8,7,6,5", "8");
        check("129,0x5", "5");
        let offer = ChapInitiator::new(user(), None).unwrap().offer();
        check(&offer[0].1, "8");
    }

    /// A peer without the secret is rejected, even if it tries to make us compute the response.
    #[test]
    fn a_peer_without_the_secret_is_refused() {
        let check = |mut initiator: ChapInitiator, own: Option<Credentials>, offer, expected| {
            assert_eq!(
                login(&mut initiator, own.as_ref(), offer).unwrap_err(),
                expected
            );
        };
        let one_way = |credentials| ChapInitiator::new(credentials, None).unwrap();
        check(
            one_way(Credentials::new("alice", *b"wrong")),
            None,
            "5",
            ChapError::Wrong,
        );
        check(
            one_way(Credentials::new("bob", *b"secret of alice")),
            None,
            "5",
            ChapError::Wrong,
        );
        check(
            one_way(Credentials::new("bob", *b"")),
            None,
            "5",
            ChapError::Wrong,
        );
        check(
            one_way(user()),
            None,
            "1,2,128",
            ChapError::NoCommonAlgorithm,
        );
        let mutual =
            |challenge| ChapInitiator::new(user(), Some((target_user(), challenge))).unwrap();
        check(mutual(OURS), None, "5", ChapError::NotMutual);
        check(
            mutual(OURS),
            Some(Credentials::new("target", *b"wrong")),
            "5",
            ChapError::Wrong,
        );
        check(
            mutual(OURS),
            Some(Credentials::new("other", *b"secret of target")),
            "5",
            ChapError::Wrong,
        );
        check(
            mutual(OURS),
            Some(Credentials::new("t", *b"secret of alice")),
            "5",
            ChapError::SameSecret,
        );
        check(
            mutual(THEIRS),
            Some(target_user()),
            "5",
            ChapError::Reflected,
        );
        assert_eq!(
            ChapInitiator::new(user(), Some((user(), OURS))).unwrap_err(),
            ChapError::SameSecret
        );
    }

    /// An initiator that sends the target's own challenge back is rejected even if its response is right.
    #[test]
    fn target_refuses_its_own_challenge() {
        let mut target = ChapTarget::new(THEIRS);
        let challenge = target.on_offer(&[("CHAP_A", "5")]).unwrap();
        let mut response = ChapInitiator::new(user(), None)
            .unwrap()
            .on_challenge(&borrow(&challenge))
            .unwrap();
        response.extend(challenge.into_iter().skip(1));
        let users = [ChapUser {
            initiator: user(),
            own: Some(target_user()),
        }];
        let result = target.on_response(&borrow(&response), &users);
        assert_eq!(result.unwrap_err(), ChapError::Reflected);
    }

    /// Errors name missing, malformed and oversized keys; nothing panics.
    #[test]
    fn malformed_keys_are_named_in_errors() {
        let long = format!("0x{}", "00".repeat(BINARY_BYTES_MAX + 1));
        let check = |pairs: &[(&str, &str)], key| {
            let mut initiator = ChapInitiator::new(user(), None).unwrap();
            assert_eq!(
                initiator.on_challenge(pairs).unwrap_err(),
                ChapError::Key(key),
                "{pairs:?}"
            );
        };
        check(&[], "CHAP_A");
        check(&[("CHAP_A", "5"), ("CHAP_C", "0x11")], "CHAP_I");
        check(
            &[("CHAP_A", "5"), ("CHAP_I", "256"), ("CHAP_C", "0x11")],
            "CHAP_I",
        );
        check(
            &[("CHAP_A", "5"), ("CHAP_I", "x"), ("CHAP_C", "0x11")],
            "CHAP_I",
        );
        check(
            &[("CHAP_A", "5"), ("CHAP_I", "1"), ("CHAP_C", "11")],
            "CHAP_C",
        );
        check(
            &[("CHAP_A", "5"), ("CHAP_I", "1"), ("CHAP_C", "0x")],
            "CHAP_C",
        );
        check(
            &[("CHAP_A", "5"), ("CHAP_I", "1"), ("CHAP_C", &long)],
            "CHAP_C",
        );
        let target = ChapTarget::new(THEIRS);
        let users = [ChapUser {
            initiator: user(),
            own: None,
        }];
        assert_eq!(
            target.on_response(&[], &users).unwrap_err(),
            ChapError::Key("CHAP_A")
        );
        let mut target = ChapTarget::new(THEIRS);
        target.on_offer(&[("CHAP_A", "5")]).unwrap();
        for pairs in [
            &[][..],
            &[("CHAP_N", "alice")],
            &[("CHAP_N", ""), ("CHAP_R", "0x11")],
        ] {
            assert!(matches!(
                target.on_response(pairs, &users),
                Err(ChapError::Key(_))
            ));
        }
    }

    /// `{:?}` doesn't reveal secrets.
    #[test]
    fn secrets_are_not_printed() {
        let printed = format!(
            "{:?}",
            ChapInitiator::new(user(), Some((target_user(), OURS)))
        );
        assert!(
            !printed.contains("secret of") && !printed.contains("115, 101"),
            "{printed}"
        );
    }
}
