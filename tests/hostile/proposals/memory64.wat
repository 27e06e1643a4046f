;; attack: Uses memories with 64-bit addresses, which no policy needs.
;; expect: load -> structure (memories)
;; proposal: MEMORY64

;; in core:
(memory i64 1)
