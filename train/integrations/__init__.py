"""Networks of a density in programs that others use. Nothing else imports these modules."""
