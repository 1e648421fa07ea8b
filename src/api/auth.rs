//! Basic authentication against bcrypt hashes, as exporter-toolkit does it.
//!
//! bcrypt is slow on purpose, so a right password is remembered (as the hash of user, hash and
//! password, never itself), a wrong one costs a turn in a pool of bounded size, and a user that
//! does not exist costs as much as one that does: the time tells nothing.

use std::collections::VecDeque;
use std::sync::Mutex;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use super::Shared;

/// Passwords checked at once: each takes a core for some 50 ms, and detection needs one too.
const CHECKS_AT_ONCE: usize = 1;
/// Right passwords remembered; more users than this are behind a proxy of their own.
const REMEMBERED: usize = 64;
/// The hash that an unknown user's password is compared with. It is of no password anybody has.
const NOBODY: &str = "$2b$10$CwTycUXWue0Thq9StjUM0uJ8Z8W4PjCZ4k5kwa4n1nE9.Tn7Yw8y.";

/// What is known of passwords.
#[derive(Debug)]
pub(crate) struct Passwords {
    turns: Semaphore,
    right: Mutex<VecDeque<[u8; 32]>>,
}

impl Default for Passwords {
    fn default() -> Self {
        Self { turns: Semaphore::new(CHECKS_AT_ONCE), right: Mutex::default() }
    }
}

impl Passwords {
    fn knows(&self, digest: &[u8; 32]) -> bool {
        self.right.lock().is_ok_and(|right| right.contains(digest))
    }

    fn remember(&self, digest: [u8; 32]) {
        if let Ok(mut right) = self.right.lock() {
            if right.len() >= REMEMBERED {
                right.pop_front();
            }
            right.push_back(digest);
        }
    }

    /// Whether `password` is that of `hash`; `hash` is none for an unknown user.
    async fn check(&self, user: &str, hash: Option<String>, password: String) -> bool {
        let mut hasher = Sha256::new();
        for part in [user, hash.as_deref().unwrap_or_default(), &password] {
            // The length keeps one text from being read as another.
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part.as_bytes());
        }
        let digest: [u8; 32] = hasher.finalize().into();
        if hash.is_some() && self.knows(&digest) {
            return true;
        }
        let Ok(_turn) = self.turns.acquire().await else { return false };
        let known = hash.is_some();
        let hash = hash.unwrap_or_else(|| NOBODY.to_owned());
        let verified =
            tokio::task::spawn_blocking(move || bcrypt::verify(password, &hash).unwrap_or(false))
                .await
                .unwrap_or(false);
        let right = known && verified;
        if right {
            self.remember(digest);
        }
        right
    }
}

/// Lets a request through when nobody has to say who they are, or when they did.
pub(super) async fn check(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let web = shared.web.borrow().clone();
    if web.users.is_empty() {
        return next.run(request).await;
    }
    let given = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(credentials);
    if let Some((user, password)) = given {
        let hash = web.users.get(&user).cloned();
        if shared.passwords.check(&user, hash, password).await {
            return next.run(request).await;
        }
    }
    let challenge = [
        (header::WWW_AUTHENTICATE, "Basic realm=\"squall\""),
        (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
    ];
    (StatusCode::UNAUTHORIZED, challenge, "Unauthorized\n").into_response()
}

/// User and password of a `Basic` header.
fn credentials(header: &str) -> Option<(String, String)> {
    let (scheme, encoded) = header.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(base64(encoded.trim())?).ok()?;
    let (user, password) = text.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

/// Decodes base64 with its usual alphabet.
fn base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    if text.len() - digits.len() > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    let (mut bits, mut held) = (0_u32, 0_u32);
    for digit in digits.bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        held = (held << 6) | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from((held >> bits) & 0xff).ok()?);
        }
    }
    // Six bits alone are no byte.
    (bits < 6).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_read_from_the_header() {
        let check = |header: &str, expected: Option<(&str, &str)>| {
            let expected = expected.map(|(u, p)| (u.to_owned(), p.to_owned()));
            assert_eq!(credentials(header), expected, "{header}");
        };
        check("Basic YWxpY2U6czNjcmV0", Some(("alice", "s3cret")));
        check("basic YTo=", Some(("a", "")));
        check("Basic YTpiOmM=", Some(("a", "b:c")));
        check("Bearer YTo=", None);
        check("Basic !!!!", None);
        check("Basic YWxpY2U=", None);
        check("Basic A", None);
    }

    #[tokio::test]
    async fn only_the_right_password_of_a_known_user_is_let_in() {
        let passwords = Passwords::default();
        let hash = bcrypt::hash("s3cret", 4).unwrap();
        let check = |user: &'static str, hash: Option<String>, password: &'static str| {
            passwords.check(user, hash, password.to_owned())
        };
        assert!(check("alice", Some(hash.clone()), "s3cret").await);
        // The second time from memory.
        assert!(check("alice", Some(hash.clone()), "s3cret").await);
        assert!(!check("alice", Some(hash), "S3cret").await);
        assert!(!check("mallory", None, "s3cret").await);
        assert_eq!(passwords.right.lock().unwrap().len(), 1);
    }
}
