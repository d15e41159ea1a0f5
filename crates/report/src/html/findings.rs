//! What `slip doctor` found, as cards.

use slip_doctor::{
    BOOT001, CONN002, GIL005, Line, MEM004, NAGLE009, NPLUS008, QUEUE010, Rule, Sheet, Statement, WAKE003,
};

use crate::sheet::{cost_and_confidence, expected_plain, healthy, told_plain};

use super::markup::Markup;

/// Which line of the budget a drag is in, if it is in one.
pub(super) fn line_of(rule: &Rule) -> Option<Line> {
    let lines = [
        (&BOOT001, Line::Boot),
        (&CONN002, Line::Connect),
        (&WAKE003, Line::Wake),
        (&MEM004, Line::Memory),
        (&GIL005, Line::Gil),
        (&NPLUS008, Line::Wait),
        (&NAGLE009, Line::Wait),
        (&QUEUE010, Line::Queue),
    ];
    lines.into_iter().find(|(known, _)| *known == rule).map(|(_, line)| line)
}

pub(super) fn write(page: &mut Markup, sheet: Option<&Sheet>) {
    page.raw("<section class=\"findings\" aria-labelledby=\"findings-heading\">\n<h2 id=\"findings-heading\">Findings</h2>\n");
    match sheet {
        None => {
            page.raw("<p>Rules need a budget: <code class=\"short\">slip record --budget</code>, or <code class=\"short\">slip doctor</code>.</p>\n");
        }
        Some(sheet) => {
            if let Some(why) = &sheet.nothing {
                page.raw("<p>Not enough to tell: ")
                    .sentence(&crate::sheet::plain_sentence(why))
                    .raw(".</p>\n");
            } else if sheet.findings.is_empty() {
                page.raw("<p class=\"fine\">").sentence(&healthy(sheet)).raw("</p>\n");
            }
            cards(page, sheet);
            others(page, sheet);
        }
    }
    page.raw("</section>\n");
}

fn cards(page: &mut Markup, sheet: &Sheet) {
    for (at, finding) in sheet.findings.iter().enumerate() {
        page.raw("<article id=\"finding-").text(&(at + 1).to_string()).raw("\" class=\"finding\"><h3>");
        if let Some(line) = line_of(finding.rule) {
            page.raw("<i class=\"k-").raw(super::base::Kind::Line(line).key()).raw("\"></i>");
        }
        page.raw("<code>")
            .raw(finding.rule.id)
            .raw("</code> ")
            .sentence(&crate::sheet::plain_sentence(&finding.headline))
            .raw("</h3>\n");
        page.raw("<p><b>").text(&cost_and_confidence(finding, sheet.unit)).raw("</b></p>\n");
        if let Some(fix) = finding.fixes.first() {
            page.raw("<p class=\"fix\">Fix: ").sentence(&told_plain(fix)).raw("</p>\n");
        }
        page.raw("<p class=\"gain\">Expect: ")
            .sentence(&expected_plain(finding.gain.as_ref(), sheet.unit))
            .raw("</p>\n");
        page.raw("<details><summary>Evidence, and what it is not</summary>\n");
        list(page, "Evidence", &finding.evidence);
        list(page, "Ruled out", &finding.ruled_out);
        list(page, "Or", finding.fixes.get(1..).unwrap_or_default());
        page.raw("<p>").raw(finding.rule.means).raw("</p></details></article>\n");
    }
}

fn list(page: &mut Markup, heading: &'static str, statements: &[Statement]) {
    if statements.is_empty() {
        return;
    }
    page.raw("<h4>").raw(heading).raw("</h4><ul>");
    for statement in statements {
        page.raw("<li>").sentence(&told_plain(statement)).raw("</li>");
    }
    page.raw("</ul>\n");
}

/// Rules that found nothing, and why.
fn others(page: &mut Markup, sheet: &Sheet) {
    let groups = [
        ("Not enough data for ", &sheet.too_little),
        ("Looked at and fine: ", &sheet.quiet),
        ("Not for this target: ", &sheet.not_of),
    ];
    for (heading, rules) in groups.into_iter().filter(|(_, rules)| !rules.is_empty()) {
        page.raw("<details class=\"rules\"><summary>").raw(heading);
        let ids: Vec<&str> = rules.iter().map(|(rule, _)| rule.id).collect();
        page.text(&ids.join(", ")).raw("</summary><ul>\n");
        for (rule, why) in rules {
            page.raw("<li><code>")
                .raw(rule.id)
                .raw("</code> ")
                .raw(rule.title)
                .raw(": ")
                .sentence(&told_plain(why))
                .raw("</li>\n");
        }
        page.raw("</ul></details>\n");
    }
}
