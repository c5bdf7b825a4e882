//! Integers of Python, which have no bounds, as numbers that have.
//!
//! A number that does not fit becomes the nearest one that does. A range of a file that ends beyond
//! all files ends at the end of the file, so nothing is lost.

use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;

/// Returns the integer `value`, or the nearest number.
pub(crate) fn saturated(value: &Bound<'_, PyAny>) -> PyResult<i64> {
    match value.extract::<i64>() {
        Err(error) if error.is_instance_of::<PyOverflowError>(value.py()) => {
            let index = value.py().import("operator")?.call_method1("index", (value,))?;
            Ok(if index.lt(0)? { i64::MIN } else { i64::MAX })
        }
        extracted => extracted,
    }
}

/// As [`saturated`], or None.
pub(crate) fn optional(value: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    if value.is_none() { Ok(None) } else { saturated(value).map(Some) }
}

/// Returns the number of a descriptor: -1, which none has, if the integer `value` is out of range.
pub(crate) fn descriptor(value: &Bound<'_, PyAny>) -> PyResult<i32> {
    Ok(i32::try_from(saturated(value)?).unwrap_or(-1))
}
