# Hashes of arrays of random words, strings joined, split, substituted and sorted.
# SPDX-License-Identifier: MIT
use strict;
use warnings;

srand(1);
my (%index, @texts);
for my $number (1 .. 20000) {
    my $word = join '', map { chr(97 + rand 26) } 1 .. 2 + rand 6;
    push @{ $index{ substr $word, 0, 2 } }, { word => $word, number => $number };
    delete $index{ (keys %index)[0] } if $number % 50 == 0;
}
for my $turn (1 .. 5) {
    @texts = map { join ' ', map { $_->{word} } sort { $a->{word} cmp $b->{word} } @{ $index{$_} } } sort keys %index;
    s/([aeiou]+)/<$1>/g for @texts;
    my %count;
    $count{$_}++ for map { split /[<> ]+/ } @texts;
    print scalar(keys %count), "\n";
}
