"""What people look at: one page, and the one document that it shows (`overview`)."""
