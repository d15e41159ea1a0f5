//! What tests draw.

use std::sync::Arc;

use slip_model::{
    FrameKind, Language, LiveFunction, LivePlace, LiveRequest, LiveThread, ThreadState, WaitReason, Window,
};

use crate::app::{About, App};
use crate::view::View;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

fn place(name: &str, file: &str, line: u32) -> Option<LivePlace> {
    let kind = if file.is_empty() { FrameKind::PhpInternal } else { FrameKind::Php };
    Some(LivePlace { kind, name: name.into(), file: file.into(), line })
}

fn function(name: &str, file: &str, first_line: u32, times: [u64; 3]) -> LiveFunction {
    let kind = if file.is_empty() { FrameKind::PhpInternal } else { FrameKind::Php };
    let [own_ns, own_cpu_ns, total_ns] = times.map(|ms| ms * MS);
    LiveFunction { kind, name: name.into(), file: file.into(), first_line, own_ns, own_cpu_ns, total_ns }
}

fn about(target: &str) -> About {
    About {
        target: target.to_owned(),
        sampler: "outside".to_owned(),
        rate_hz: 49,
        cannot_see: vec![
            "C functions below Python code, and native and kernel frames, are not shown".to_owned(),
            "why a thread waits is not known, only that it does".to_owned(),
        ],
    }
}

fn app(target: &str, threads: Vec<LiveThread>, functions: Vec<LiveFunction>) -> App {
    let window = Window {
        end_ns: 12 * SECOND,
        length_ns: SECOND,
        threads,
        span_ns: 10 * SECOND,
        busy_ns: 26 * SECOND,
        functions,
        samples: 3_920,
        torn: 12,
        requests: 412,
    };
    let mut app = App::new(about(target), View::new(SECOND));
    app.see(window);
    app
}

/// Eight workers of a pool, in all states.
pub(crate) fn pool() -> App {
    let blocked = ThreadState::Blocked;
    let states = [
        (
            ThreadState::Running,
            871,
            12,
            "/shop/cart",
            15,
            place("Kernel::boot", "/srv/www/src/Kernel.php", 120),
        ),
        (ThreadState::Idle, 2, 0, "", 0, None),
        (
            blocked(Some(WaitReason::Socket)),
            35,
            4,
            "/wp-json/wp/v2/posts",
            1_240,
            place("mysqli_query", "", 0),
        ),
        (
            ThreadState::Ready,
            310,
            402,
            "/",
            7,
            place("WP_Hook::apply_filters", "/srv/www/wp-includes/class-wp-hook.php", 310),
        ),
        (ThreadState::Running, 640, 90, "/index.php", 3, None),
        (
            blocked(Some(WaitReason::PageFault)),
            120,
            1,
            "/feed/",
            61_000,
            place("simplexml_load_string", "", 0),
        ),
        (
            blocked(None),
            11,
            0,
            "/sitemap.xml",
            44,
            place("{closure}", "/srv/www/wp-content/plugins/seo/src/map.php", 9),
        ),
        (ThreadState::Idle, 0, 0, "", 0, None),
    ];
    let threads = (4_101..)
        .zip(states)
        .map(|(pid, (state, cpu, ready, uri, age, place))| LiveThread {
            pid,
            tid: pid,
            language: Language::Php,
            title: "php-fpm: pool www".into(),
            name: "php-fpm8.2".into(),
            state,
            is_engine: place.is_none(),
            cpu_ns: Some(cpu * MS),
            ready_ns: Some(ready * MS),
            request: (!uri.is_empty()).then(|| LiveRequest {
                method: "GET".into(),
                uri: uri.into(),
                script: "/srv/www/index.php".into(),
                age_ns: age * MS,
            }),
            place,
        })
        .collect();
    let functions = vec![
        function("mysqli_query", "", 0, [5_800, 3_200, 5_800]),
        function("require_once", "/srv/www/wp-settings.php", 1, [3_300, 3_300, 10_200]),
        function("WP_Hook::apply_filters", "/srv/www/wp-includes/class-wp-hook.php", 285, [780, 700, 12_900]),
        function("get_option", "/srv/www/wp-includes/option.php", 78, [440, 410, 2_200]),
        function("usleep", "", 0, [400, 0, 400]),
        function(
            "Composer\\Autoload\\ClassLoader::findFileWithExtension",
            "/srv/www/vendor/composer/ClassLoader.php",
            472,
            [90, 90, 130],
        ),
        function("main", "/srv/www/index.php", 1, [20, 20, 25_900]),
    ];
    app("--fpm www", threads, functions)
}

/// A program with threads, and a child.
pub(crate) fn python() -> App {
    let thread = |pid, tid, name: &str, state, cpu: u64, line| LiveThread {
        pid,
        tid,
        language: Language::Python,
        title: "gunicorn app:app".into(),
        name: name.into(),
        state,
        cpu_ns: Some(cpu * MS),
        ready_ns: Some(3 * MS),
        place: Some(LivePlace {
            kind: FrameKind::Python,
            name: "Worker.handle".into(),
            file: "/srv/app/worker.py".into(),
            line,
        }),
        ..LiveThread::default()
    };
    let threads = vec![
        thread(700, 700, "MainThread", ThreadState::Blocked(Some(WaitReason::Poll)), 1, 12),
        thread(700, 704, "pool-1", ThreadState::Running, 950, 31),
        thread(700, 705, "pool-2", ThreadState::Blocked(Some(WaitReason::Lock)), 20, 44),
        thread(701, 701, "MainThread", ThreadState::Blocked(Some(WaitReason::Sleep)), 0, 12),
    ];
    let functions = vec![LiveFunction {
        kind: FrameKind::Python,
        ..function("Worker.handle", "/srv/app/worker.py", 10, [9_000, 4_000, 26_000])
    }];
    app("--pid 700 --children", threads, functions)
}

/// Names that are made to break the layout.
pub(crate) fn hostile() -> App {
    let mut app = pool();
    let names = [
        "\x1b[2J\x1b[31mred",
        "tab\tnew\nline\r\u{202e}txt.exe",
        "计算订单总额并发送通知计算订单总额并发送通知计算订单总额并发送通知计算订单总额并发送通知",
        "e\u{301}e\u{301}e\u{301} combining, 👩‍👩‍👧 family, 🇩🇪 flag",
        &"very_long_name_".repeat(5_000),
    ];
    for (at, name) in names.into_iter().enumerate() {
        let name: Arc<str> = Arc::from(name);
        app.shown.functions[at].name = name.clone();
        app.shown.functions[at].file = name.clone();
        app.shown.threads[at].place =
            Some(LivePlace { kind: FrameKind::Php, name: name.clone(), file: name.clone(), line: u32::MAX });
        app.shown.threads[at].request =
            Some(LiveRequest { method: name.clone(), uri: name.clone(), script: name, age_ns: u64::MAX });
    }
    app.about.target = "--fpm \x1b]0;pwned\x07".to_owned();
    app
}
