//! Invitations that were not shown yet: a share for each person, so that nobody makes another's
//! worthless.

use std::collections::{HashMap, VecDeque};
use std::io;
use weft_client::protocol::Token;
use weft_vfs::{Ino, whose};

/// Most of one person's; older ones are worth nothing then.
const OF_USER_MAX: usize = 1024;

/// Most of all people's. Then those go of whoever has most.
const MAX: usize = 16_384;

/// Rights that an invitation gives.
#[derive(Clone, Copy)]
struct Issued {
    user: u32,
    /// Person whose share it counts against.
    person: u32,
    ino: Ino,
}

/// Invitations, each for the user who asked for it.
#[derive(Default)]
pub(crate) struct Tokens {
    of: HashMap<Token, Issued>,
    /// Each person's, in the order in which they were issued; some were shown since.
    people: HashMap<u32, VecDeque<Token>>,
}

impl Tokens {
    /// Issues one by which programs of `user` may read `ino`.
    pub(crate) fn issue(&mut self, user: u32, ino: Ino) -> io::Result<Token> {
        let mut token = Token::default();
        rustix::rand::getrandom(&mut token, rustix::rand::GetRandomFlags::empty())?;
        let person = whose(user);
        let held = self.people.get(&person).map_or(0, VecDeque::len);
        if held >= OF_USER_MAX {
            self.drop_oldest(person);
        }
        while self.of.len() >= MAX {
            let most = self.people.iter().max_by_key(|(_, tokens)| tokens.len()).map(|(person, _)| *person);
            most.into_iter().for_each(|person| self.drop_oldest(person));
        }
        self.of.insert(token, Issued { user, person, ino });
        self.people.entry(person).or_default().push_back(token);
        Ok(token)
    }

    fn drop_oldest(&mut self, person: u32) {
        let Some(tokens) = self.people.get_mut(&person) else { return };
        if let Some(oldest) = tokens.pop_front() {
            self.of.remove(&oldest);
        }
        if tokens.is_empty() {
            self.people.remove(&person);
        }
    }

    /// The file that programs of `user` may read by `token`. Once.
    pub(crate) fn take(&mut self, token: &Token, user: u32) -> Option<Ino> {
        let Issued { user: owner, person, ino } = *self.of.get(token)?;
        if owner != user {
            return None;
        }
        self.of.remove(token);
        if let Some(tokens) = self.people.get_mut(&person) {
            tokens.retain(|other| other != token);
            if tokens.is_empty() {
                self.people.remove(&person);
            }
        }
        Some(ino)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_who_asks_for_many_makes_only_his_own_worthless() {
        let mut tokens = Tokens::default();
        let one = tokens.issue(1000, Ino(7)).unwrap();
        let first = tokens.issue(1001, Ino(8)).unwrap();
        let many = (0..5000).map(|_| tokens.issue(1001, Ino(8)).unwrap()).count();
        assert_eq!(many, 5000);
        assert_eq!(tokens.take(&first, 1001), None);
        assert_eq!(tokens.take(&one, 1000), Some(Ino(7)));
        assert_eq!(tokens.take(&one, 1000), None);
        assert_eq!(tokens.of.len(), OF_USER_MAX);
    }

    #[test]
    fn one_is_for_who_asked_for_it_and_all_have_a_bound() {
        let mut tokens = Tokens::default();
        let one = tokens.issue(1, Ino(7)).unwrap();
        assert_eq!(tokens.take(&one, 2), None);
        assert_eq!(tokens.take(&one, 1), Some(Ino(7)));
        let issued = (0..30_000).map(|number| tokens.issue(number / 1000, Ino(8)).unwrap()).count();
        assert_eq!(issued, 30_000);
        assert!(tokens.of.len() <= MAX);
        assert_eq!(tokens.people.values().map(VecDeque::len).sum::<usize>(), tokens.of.len());
        // Nobody has none.
        assert_eq!(tokens.people.len(), 30);
    }
}
