"""What all kinds of tables need: values of Arrow columns as JSON, their sizes and types, and texts of rows."""
