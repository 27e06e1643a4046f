;; attack: Declares limits in 64 kB of lines.
;; expect: load -> limits

;; in component:
(@custom "pointsman:limits"
;; repeat 4000: "fuel_base: 1000\0a"
)
