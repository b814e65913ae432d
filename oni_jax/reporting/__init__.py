"""What people look at when runs have been made: plots over seeds, and a report of a run. Nothing else imports it."""
