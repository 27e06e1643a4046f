module pointsman

go 1.24
