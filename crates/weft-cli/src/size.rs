//! Sizes as people write them: `64K`, `10G`, in powers of 1024.

/// Parses a size in bytes.
pub fn parse(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        unit => return Err(format!("unknown unit '{unit}'; use K, M, G or T")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("'{text}' is not a size; write it like 64K or 10G"))?;
    number.checked_mul(1 << unit).ok_or_else(|| format!("'{text}' is too large"))
}

/// Parses a limit: a size in bytes above 0.
pub fn parse_some(text: &str) -> Result<u64, String> {
    match parse(text)? {
        0 => Err("nothing could be stored; leave it out for no limit".into()),
        bytes => Ok(bytes),
    }
}

/// Returns a size for people to read.
pub fn show(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let unit = (bytes.max(1).ilog2() / 10) as usize;
    if unit == 0 {
        return crate::shown::counted(bytes, "byte", "bytes");
    }
    let hundredths = (u128::from(bytes) * 100) >> (10 * unit);
    format!("{}.{:02} {}", hundredths / 100, hundredths % 100, units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(parse("64K"), Ok(65536));
        assert_eq!(parse("10GiB"), Ok(10 << 30));
        assert_eq!(parse("17"), Ok(17));
        assert!(parse("K").is_err() && parse("1X").is_err() && parse("99999999999T").is_err());
        assert!(parse_some("0").is_err() && parse_some("1") == Ok(1));
    }

    #[test]
    fn sizes_show_with_two_decimals_cut_off() {
        assert_eq!((&*show(0), &*show(1)), ("0 bytes", "1 byte"));
        assert_eq!(show(1536), "1.50 KiB");
        assert_eq!(show((1 << 30) - 1), "1023.99 MiB");
    }
}
