"""What every other package uses: errors, text, arrays, files, locks and names."""
