//! Tests of stores through their public face.

mod attributes_gone;
mod check;
mod compare;
mod contract;
mod convert;
mod crash;
mod damage;
mod digests;
mod flips;
mod generate;
mod gone;
mod opening;
mod parts;
mod postgres;
mod postgres_durability;
mod postgres_protected;
mod proven;
mod rot;
mod salvage;
mod sample;
mod shape;
mod space;
mod sums;
mod upgrade;
mod upgrade_killed;
mod waiting;
