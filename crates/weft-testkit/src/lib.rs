//! Test support: reference model, operation generator, fault-injecting stores
