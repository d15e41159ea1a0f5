//! Limits of `slip doctor --fail-on`, as they are typed.

use slip_doctor::{Amount, Limit, Line, Of, Quantile, Rule};

/// `boot>10ms`, `wake>5%`, `whole.p95>200ms`, `CONN002>1ms`, `any`.
pub(crate) fn parse(text: &str) -> Result<Limit, String> {
    if text == "any" {
        return Ok(Limit { of: Of::Any, amount: Amount::Ns(0) });
    }
    let (what, amount) = text.split_once('>').ok_or("`WHAT>AMOUNT`, as in `boot>10ms`, or `any`")?;
    let (name, quantile) = match what.trim().split_once('.') {
        Some((name, quantile)) => (name, Some(parse_quantile(quantile)?)),
        None => (what.trim(), None),
    };
    let of = of(name, quantile)?;
    Ok(Limit { of, amount: parse_amount(amount.trim())? })
}

fn of(name: &str, quantile: Option<Quantile>) -> Result<Of, String> {
    if let Some(rule) = Rule::named(name) {
        return match quantile {
            None => Ok(Of::Rule(rule)),
            Some(_) => Err("what a rule finds is known on average alone".to_owned()),
        };
    }
    let quantile = quantile.unwrap_or(Quantile::Mean);
    match &*name.to_ascii_lowercase() {
        "whole" => Ok(Of::Whole(quantile)),
        // Of PHP, and of the application, which is estimated.
        "boot" if quantile == Quantile::Mean => Ok(Of::Boot),
        "memory" => Ok(Of::Line(Line::Memory, quantile)),
        "connect" => Ok(Of::Line(Line::Connect, quantile)),
        name => {
            let lines = Line::ALL.into_iter().filter(|line| !matches!(line, Line::Idle | Line::Unknown));
            let line = lines.into_iter().find(|line| line.name().eq_ignore_ascii_case(name));
            line.map(|line| Of::Line(line, quantile)).ok_or_else(|| {
                format!("no line of the sheet and no rule is called `{name}`: `boot`, `wake`, `conn`, `whole`, `WAKE003` are")
            })
        }
    }
}

fn parse_quantile(text: &str) -> Result<Quantile, String> {
    match text {
        "mean" => Ok(Quantile::Mean),
        "p50" => Ok(Quantile::P50),
        "p95" => Ok(Quantile::P95),
        "p99" => Ok(Quantile::P99),
        _ => Err("`mean`, `p50`, `p95` or `p99` behind the point".to_owned()),
    }
}

fn parse_amount(text: &str) -> Result<Amount, String> {
    let end = text.find(|digit: char| !digit.is_ascii_digit() && digit != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 =
        number.parse().map_err(|_| "a time or a share with its unit: `10ms`, `5%`".to_owned())?;
    match unit.trim() {
        "%" if number <= 100.0 => Ok(Amount::Tenths((number * 10.0).round() as u64)),
        "us" | "µs" => Ok(Amount::Ns((number * 1e3) as u64)),
        "ms" => Ok(Amount::Ns((number * 1e6) as u64)),
        "s" => Ok(Amount::Ns((number * 1e9) as u64)),
        _ => Err("a time or a share with its unit: `500us`, `10ms`, `1s`, `5%`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_name_a_line_a_rule_or_the_whole() {
        let limit = |of, amount| Ok(Limit { of, amount });
        assert_eq!(parse("boot>10ms"), limit(Of::Boot, Amount::Ns(10_000_000)));
        assert_eq!(
            parse("WAKE.p95 > 0.5ms"),
            limit(Of::Line(Line::Wake, Quantile::P95), Amount::Ns(500_000))
        );
        assert_eq!(parse("conn>2.5%"), limit(Of::Line(Line::Connect, Quantile::Mean), Amount::Tenths(25)));
        assert_eq!(parse("connect>2us"), limit(Of::Line(Line::Connect, Quantile::Mean), Amount::Ns(2_000)));
        assert_eq!(parse("whole.p99>1s"), limit(Of::Whole(Quantile::P99), Amount::Ns(1_000_000_000)));
        let rule = Rule::named("wake003").unwrap();
        assert_eq!(parse("wake003>1ms"), limit(Of::Rule(rule), Amount::Ns(1_000_000)));
        assert_eq!(parse("any"), limit(Of::Any, Amount::Ns(0)));
        for wrong in [
            "boot",
            "boot>10",
            "boot>ms",
            "boots>1ms",
            "wake.p10>1ms",
            "WAKE003.p95>1ms",
            "wake>101%",
            "idle>1ms",
            ">1ms",
            "boot>-1ms",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
