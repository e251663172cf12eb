"""Durable background, scheduled and event-driven jobs on NATS JetStream."""
