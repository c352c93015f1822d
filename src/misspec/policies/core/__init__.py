"""The parts that all policies share: Policy, its events and state, queries and answers, fields of domains."""
