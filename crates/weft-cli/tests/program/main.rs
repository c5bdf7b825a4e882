//! The program as its users run it: each test starts the real one, and mounts for real where it can.

mod advice;
mod background;
mod check;
mod closed;
mod damage;
mod diff;
mod digest;
mod errors;
mod export;
mod gone;
mod helper;
mod holds;
mod import;
mod mixtures;
mod networks;
mod output;
mod pages;
mod place;
mod planted;
mod programs;
mod transfer;
mod tree;
mod trust;
mod whereabouts;
