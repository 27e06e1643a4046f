;; attack: Declares more fuel for itself than it is granted, and loops.
;; expect: score -> out-of-fuel

;; in component:
(@custom "pointsman:limits" "fuel_base: 1000000000000\0a")

;; in score:
(loop $again (br $again)) (unreachable)
