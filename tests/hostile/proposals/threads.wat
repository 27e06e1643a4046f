;; attack: Uses shared memories, which no policy needs.
;; expect: load -> structure (memories)
;; proposal: THREADS

;; in core:
(memory 1 1 shared)
