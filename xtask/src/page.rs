//! The script and the style of the report's page, from `web/`, by Debian's `esbuild`: `crates/report/src/html/page.js`, `page.css`, and
//! `policy.txt`, which allows exactly these two.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

const FOLDER: &str = "crates/report/src/html";
const BANNER: &str = "Made from web/ by `cargo xtask page`.";

/// Writes the files.
pub(crate) fn write() -> Result<()> {
    for (name, text) in make()? {
        let path = format!("{FOLDER}/{name}");
        fs::write(&path, text).with_context(|| format!("cannot write {path}"))?;
    }
    Ok(())
}

/// Whether the types fit, and the files are what `web/` makes.
pub(crate) fn check() -> Result<()> {
    let status = Command::new("tsc").args(["-p", "web"]).status().context("cannot start tsc")?;
    ensure!(status.success(), "the types of web/ do not fit");
    for (name, text) in make()? {
        let path = format!("{FOLDER}/{name}");
        if fs::read_to_string(&path).ok().as_ref() != Some(&text) {
            bail!("{path} is not what web/ makes: cargo xtask page");
        }
    }
    Ok(())
}

fn make() -> Result<Vec<(&'static str, String)>> {
    let script =
        bundle("web/page.ts", &["--format=iife", "--target=es2020", &format!("--banner:js=// {BANNER}")])?;
    let style = bundle("web/page.css", &[&format!("--banner:css=/* {BANNER} */")])?;
    // Either would end its element in the page.
    for text in [&script, &style] {
        let small = text.to_lowercase();
        ensure!(
            !["</script", "</style", "<!--"].iter().any(|end| small.contains(end)),
            "an end of an element in it"
        );
    }
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'\n",
        hash(&script)?,
        hash(&style)?
    );
    Ok(vec![("page.js", script), ("page.css", style), ("policy.txt", policy)])
}

fn bundle(entry: &str, options: &[&str]) -> Result<String> {
    let made = Command::new("esbuild")
        .args([entry, "--bundle", "--minify", "--charset=utf8", "--log-level=warning"])
        .args(options)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start esbuild (Debian's package of that name)")?;
    ensure!(made.status.success(), "esbuild refuses {entry}");
    Ok(String::from_utf8(made.stdout)?)
}

/// SHA-256 in base 64.
fn hash(text: &str) -> Result<String> {
    let mut child = Command::new("openssl")
        .args(["dgst", "-sha256", "-binary"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start openssl")?;
    child.stdin.take().context("no standard input")?.write_all(text.as_bytes())?;
    let bytes = child.wait_with_output()?.stdout;
    ensure!(bytes.len() == 32, "openssl gave {} bytes", bytes.len());
    Ok(base64(&bytes))
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = (0..3).fold(0_u32, |bits, at| bits << 8 | u32::from(three.get(at).copied().unwrap_or(0)));
        for at in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * at) & 63) as usize] as char;
            text.push(if at <= three.len() { letter } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_as_browsers_write_them() {
        assert_eq!([base64(b"a"), base64(b"ab"), base64(b"abc")], ["YQ==", "YWI=", "YWJj"]);
    }
}
