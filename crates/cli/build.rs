//! Links release builds for older systems.

fn main() -> Result<(), slip_glibc::GlibcError> {
    slip_glibc::link_for_oldest(slip_glibc::Kind::Program)
}
