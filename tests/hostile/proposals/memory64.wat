;; attack: Uses memories with 64-bit addresses, which no policy needs.
;; expect: load -> invalid
;; proposal: MEMORY64

;; in core:
(memory i64 1)
