;; attack: Declares limits in bytes that are no text.
;; expect: load -> limits

;; in component:
(@custom "pointsman:limits" "\ff\fe\00\1b[2J")
