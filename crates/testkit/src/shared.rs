use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

static SHARED: LazyLock<Mutex<HashMap<TypeId, &'static (dyn Any + Send + Sync)>>> =
    LazyLock::new(Mutex::default);

/// The one of its type that all tests of a binary have, made for the first that asks. A module that is in a binary more than once has it
/// in common, which a `static` in it would not be.
///
/// # Panics
///
/// As `make` does.
pub fn shared<T: Any + Send + Sync>(make: impl FnOnce() -> T) -> &'static T {
    let mut all = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let one = *all.entry(TypeId::of::<T>()).or_insert_with(|| Box::leak(Box::new(make())));
    one.downcast_ref().unwrap_or_else(|| unreachable!("it is found by its type"))
}

#[cfg(test)]
mod tests {
    use super::shared;

    #[test]
    fn each_type_has_one() {
        assert_eq!((shared(|| 1_u32), shared(|| 2_u32), shared(|| 3_u64)), (&1, &1, &3));
    }
}
