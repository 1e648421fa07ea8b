//! E-mail by SMTP, with STARTTLS unless told otherwise.
//!
//! The client blocks, on a thread that may: a page a day needs no asynchronous one.

use std::fmt::Write as _;
use std::time::Duration;

use futures_util::future::BoxFuture;
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::message::{Mailbox, SinglePart};
use lettre::transport::smtp::authentication::Credentials;
use lettre::{Message as Mail, SmtpTransport, Transport as _};

use super::config::Secret;
use super::{Kind, Links, Message, Notifier, NotifyError, labels};

/// How long a mail server may take: it may greet slowly on purpose.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How the connection is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SmtpSecurity {
    /// Plain at first, then TLS, or nothing is sent.
    StartTls,
    /// TLS from the first byte.
    Tls,
    /// No protection: for a server on the same machine.
    Plain,
}

/// A mail server and whom to write to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmailSettings {
    /// The server's name.
    pub host: String,
    /// Its port: 587 with STARTTLS, 465 with TLS.
    pub port: u16,
    /// How the connection is protected.
    pub security: SmtpSecurity,
    /// Whom to log in as, and the password.
    pub login: Option<(String, Secret)>,
    /// The sender.
    pub from: String,
    /// The receivers.
    pub to: Vec<String>,
}

/// An e-mail receiver.
#[derive(Debug)]
pub struct Email {
    pub(super) name: String,
    pub(super) settings: EmailSettings,
    pub(super) links: Links,
}

/// Ties the mails of one page together in a reader.
#[derive(Debug, Clone)]
struct XKey(String);

impl lettre::message::header::Header for XKey {
    fn name() -> HeaderName {
        HeaderName::new_from_ascii_str("X-Squall-Idempotency-Key")
    }

    fn parse(text: &str) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Self(text.to_owned()))
    }

    fn display(&self) -> HeaderValue {
        HeaderValue::new(Self::name(), self.0.clone())
    }
}

impl Email {
    /// The mail. Its `Message-ID` is made of the key, so a mail sent twice is one in most readers,
    /// and the mails of one page form a thread.
    ///
    /// # Errors
    ///
    /// When an address cannot be read.
    pub fn mail(&self, message: &Message) -> Result<Mail, NotifyError> {
        let refused =
            |text: String| NotifyError::Refused { receiver: self.name.clone(), body: text };
        let mailbox = |text: &str| {
            text.parse::<Mailbox>().map_err(|error| refused(format!("`{text}`: {error}")))
        };
        let from = mailbox(&self.settings.from)?;
        let domain = from.email.domain().to_owned();
        let mut mail = Mail::builder()
            .from(from)
            .subject(format!("[{}] {}", message.severity(), message.headline()))
            .message_id(Some(format!("<{}@{domain}>", message.key)))
            .references(format!("<{}@{domain}>", message.group))
            .header(XKey(message.key.clone()));
        for to in &self.settings.to {
            mail = mail.to(mailbox(to)?);
        }
        let part = SinglePart::builder().header(ContentType::TEXT_PLAIN).body(self.text(message));
        mail.singlepart(part).map_err(|error| refused(error.to_string()))
    }

    fn text(&self, message: &Message) -> String {
        let mut text = String::new();
        for told in message.all() {
            let incident = &told.incident;
            writeln!(text, "{} ({})", incident.dependency, told.event.as_str()).ok();
            writeln!(text, "{}\n", incident.summary).ok();
            writeln!(text, "{}\n", labels::description(incident)).ok();
            writeln!(text, "Class:    {}", incident.classification).ok();
            writeln!(text, "Incident: {}", self.links.incident(&incident.id)).ok();
            writeln!(text, "Picture:  {}", self.links.plot(&incident.id)).ok();
            writeln!(text, "Runbook:  {}\n", self.links.runbook(incident)).ok();
        }
        text
    }

    async fn transport(&self) -> Result<SmtpTransport, NotifyError> {
        let settings = &self.settings;
        let builder = match settings.security {
            SmtpSecurity::StartTls => SmtpTransport::starttls_relay(&settings.host),
            SmtpSecurity::Tls => SmtpTransport::relay(&settings.host),
            SmtpSecurity::Plain => Ok(SmtpTransport::builder_dangerous(&settings.host)),
        };
        let mut builder =
            builder.map_err(|error| self.failed(error))?.port(settings.port).timeout(Some(TIMEOUT));
        if let Some((user, password)) = &settings.login {
            let password = password.read(&self.name).await?;
            builder = builder.credentials(Credentials::new(user.clone(), password));
        }
        Ok(builder.build())
    }

    fn failed(&self, error: lettre::transport::smtp::Error) -> NotifyError {
        let receiver = self.name.clone();
        if error.is_timeout() {
            return NotifyError::Timeout { receiver };
        }
        match error.status() {
            // A permanent refusal of the mail; of the login or the relay, a person repairs it.
            Some(code) if error.is_permanent() => {
                let status = u16::from(code);
                let body = error.to_string();
                if matches!(status, 552 | 554 | 501) {
                    NotifyError::Refused { receiver, body }
                } else {
                    NotifyError::Status { receiver, status, body, retry_after: None }
                }
            }
            Some(code) => NotifyError::Status {
                receiver,
                status: u16::from(code),
                body: error.to_string(),
                retry_after: None,
            },
            None => NotifyError::Unreachable { receiver, cause: Box::new(error) },
        }
    }
}

impl Notifier for Email {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> Kind {
        Kind::Email
    }

    fn send<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Result<(), NotifyError>> {
        Box::pin(async move {
            let mail = self.mail(message)?;
            let transport = self.transport().await?;
            match tokio::task::spawn_blocking(move || transport.send(&mail)).await {
                Ok(sent) => sent.map(drop).map_err(|error| self.failed(error)),
                Err(cause) => Err(NotifyError::Unreachable {
                    receiver: self.name.clone(),
                    cause: Box::new(cause),
                }),
            }
        })
    }
}
